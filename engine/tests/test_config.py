"""Settings: the order of the three places, and one clear message for every wrong value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.config import (
    ServerSettings,
    Settings,
    check_exposure,
    embedded_model,
    keep_sums_in_order,
    let_threads_sleep,
    load,
    model_path,
)
from engine.errors import SettingError


def test_the_command_line_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('model = "a.gguf"\n[server]\nport = 1\nhost = "::1"\n[engine]\nthreads = 1\n')
    environment = {"SPARKGATE_PORT": "2", "SPARKGATE_THREADS": "2", "SPARKGATE_DATA": "/somewhere"}
    settings = load(command_line={"engine.threads": "3"}, environment=environment, file=file)

    assert ("a.gguf", "::1", 2, 3) == (
        settings.model,
        settings.server.host,
        settings.server.port,
        settings.engine.threads,
    )


def test_nothing_said_gives_the_defaults() -> None:
    assert Settings() == load(command_line={"server.port": None}, environment={})


def test_the_default_temperature_of_ds4_scripts_is_read() -> None:
    settings = load(command_line={}, environment={"DS4_SERVER_DEFAULT_TEMP": "0"})

    assert 0.0 == settings.server.default_temperature


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("[server]\nprot = 1", "did you mean server.port", id="misspelt"),
        pytest.param("[server]\nport = true", "server.port", id="boolean"),
        pytest.param("[server]\nport = 70000", "0 to 65535", id="range"),
        pytest.param("[engine]\nthreads = 1.5", "a whole number", id="fraction"),
        pytest.param("[server]\nhost = 1", "allowed is text", id="number_for_text"),
        pytest.param('[engine]\nkv_storage = "fp8"', "packed or wide", id="choice"),
        pytest.param("[nothing]\nx = 1", "unknown setting nothing.x", id="unknown_table"),
        pytest.param("server = 1", "unknown setting server", id="table_is_a_number"),
        pytest.param("[server", "not TOML", id="syntax"),
    ],
)
def test_a_wrong_file_is_refused_by_key_and_origin(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)

    with pytest.raises(SettingError) as caught:
        load(command_line={}, environment={}, file=file)
    assert named in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("value", ["abc", "-1", "1e5", "nan", "99999"])
def test_a_wrong_environment_variable_stops_the_start(value: str) -> None:
    with pytest.raises(SettingError, match="SPARKGATE_PORT"):
        load(command_line={}, environment={"SPARKGATE_PORT": value})


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(SettingError, match="SPARKGATE_KEEPALIVE_S"):
        load(command_line={}, environment={"SPARKGATE_KEEPALIVE_S": "nan"})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        load(command_line={}, environment={}, file=tmp_path / "none.toml")


def test_a_missing_model_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="give a path to a GGUF file"):
        model_path(Settings(model=str(tmp_path / "none.gguf")))


@pytest.mark.parametrize(
    ("model", "found"),
    [
        pytest.param(".", "is not a regular file", id="folder"),
        pytest.param("/dev/null", "is not a regular file", id="device"),
        pytest.param("a" * 5000, "File name too long", id="long"),
        pytest.param("a\0b", "cannot be used", id="nul"),
        pytest.param("~no-such-user/x", "cannot be used", id="unknown_user"),
    ],
)
def test_what_can_be_no_model_file_is_named_in_a_short_message(model: str, found: str) -> None:
    with pytest.raises(SettingError, match="give a path to a GGUF file") as error:
        model_path(Settings(model=model))

    assert found in str(error.value)
    assert len(str(error.value)) < 250


def test_a_number_beyond_all_floats_is_refused_by_its_key(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"[server]\ngrace_s = 1{'0' * 400}\n")

    with pytest.raises(SettingError, match=r"server\.grace_s in .* is a very large number; allowed"):
        load(command_line={}, environment={}, file=file)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_a_public_address_needs_a_key(host: str) -> None:
    with pytest.raises(SettingError, match="SPARKGATE_API_KEY"):
        check_exposure(ServerSettings(host=host))
    check_exposure(ServerSettings(host=host, api_key="k"))


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize("keys", [",", " ", " , ,"])
def test_blanks_and_commas_are_no_key(host: str, keys: str) -> None:
    with pytest.raises(SettingError, match=r"server\.api_key holds no key, found '"):
        check_exposure(ServerSettings(host=host, api_key=keys))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.5.5.5"])
def test_the_loopback_needs_no_key(host: str) -> None:
    check_exposure(ServerSettings(host=host))


def test_a_key_is_not_shown_with_the_settings() -> None:
    assert "s3cret" not in repr(Settings(server=ServerSettings(api_key="s3cret")))


def test_the_embedded_model_lies_beside_the_engine() -> None:
    assert ("tiny", "sparkgate-tiny.gguf") == (embedded_model().parent.name, embedded_model().name)


@pytest.mark.parametrize(
    ("cpu", "given", "wanted"),
    [
        pytest.param("vendor_id : GenuineIntel", {}, "AUTO,STRICT", id="intel"),
        pytest.param("vendor_id : GenuineIntel", {"MKL_CBWR": "AVX2"}, "AVX2", id="the_environment_wins"),
        pytest.param("vendor_id : AuthenticAMD", {}, None, id="another_maker"),
        pytest.param(None, {}, None, id="no_list_of_processors"),
    ],
)
def test_mkl_keeps_the_order_of_its_sums_on_intel(
    cpu: str | None, given: dict[str, str], wanted: str | None, tmp_path: Path
) -> None:
    if cpu is not None:
        (tmp_path / "cpuinfo").write_text(cpu)
    environment = dict(given)
    keep_sums_in_order(environment, tmp_path / "cpuinfo")

    assert wanted == environment.get("MKL_CBWR")


def test_threads_sleep_unless_the_environment_says_otherwise() -> None:
    told, untold = {"OMP_WAIT_POLICY": "ACTIVE"}, dict[str, str]()
    let_threads_sleep(told)
    let_threads_sleep(untold)

    assert ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "PASSIVE"}) == (told, untold)


INTEL = """
import importlib, io, os, sys
from pathlib import Path
os.environ.pop("MKL_CBWR", None)
opened, Path.open = Path.open, lambda *_: io.StringIO("GenuineIntel")

class Torch:  # comes before all other finders: sees torch asked for, and lets nobody load it
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("torch is next,", os.environ.get("MKL_CBWR"))
            raise SystemExit

sys.meta_path.insert(0, Torch())
importlib.import_module(sys.argv[1])
print(os.environ.get("MKL_CBWR"))
"""


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("engine.kernels.ref.linear", "torch is next, AUTO,STRICT"),
        ("engine.runner", "torch is next, AUTO,STRICT"),
        ("engine.tests.conftest", "torch is next, AUTO,STRICT"),
        ("engine.cli", "AUTO,STRICT"),
        ("gates.equivalence.bench", "AUTO,STRICT"),
    ],
)
def test_whatever_loads_torch_through_the_engine_has_told_mkl_before(module: str, said: str) -> None:
    found = subprocess.run([sys.executable, "-c", INTEL, module], capture_output=True, text=True, check=True)

    assert said == found.stdout.strip()


def test_a_bound_is_written_as_a_person_would_type_it() -> None:
    with pytest.raises(SettingError, match=r"a whole number from 1 to 1048576$"):
        load(command_line={"engine.cache_mib": "0"}, environment={})
