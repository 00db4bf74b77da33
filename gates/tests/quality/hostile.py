"""Programs that try to get out, to stay, or to pass without being right: each with a part of its end.

All of them claim to be `f`, whose test is `assert f(1) == 2`; none of them is right.
"""

from __future__ import annotations

from typing import Final

FAST: Final = "def f(x):\n    return 2\n"

# name: (program, what the note or the state must say); every program must fail or time out
HOSTILE: Final[dict[str, tuple[str, str]]] = {
    "exits_at_import": ("import os\nos._exit(0)", "ended before"),
    "exits_in_the_call": ("import os\ndef f(x):\n    os._exit(0)", "ended before"),
    "sys_exits": ("import sys\ndef f(x):\n    sys.exit(0)", "SystemExit"),
    "quits_at_import": ("raise SystemExit(0)", "SystemExit"),
    "kills_itself": (
        "import os, signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGKILL)",
        "ended before",
    ),
    "kills_everybody": (
        "import os, signal\ndef f(x):\n    os.kill(-1, signal.SIGKILL)",
        "AssertionError|Error",
    ),
    "kills_by_foreign_call": (
        "import ctypes\ndef f(x):\n    ctypes.CDLL(None).abort()",
        "ended before|Error",
    ),
    "segfaults": ("import ctypes\ndef f(x):\n    ctypes.string_at(0)", "ended before|Error"),
    "fork_bomb": ("import os\ndef f(x):\n    while True: os.fork()", "PermissionError"),
    "fork_bomb_at_import": ("import os\nwhile True: os.fork()", "PermissionError"),
    "starts_a_program": ("import subprocess\nsubprocess.run(['/usr/bin/env'])", "PermissionError"),
    "starts_a_shell": (
        "import os\ndef f(x):\n    return 2 if os.system('true') == 0 else 0",
        "AssertionError",
    ),
    "stays_as_a_daemon": ("import os\nif os.fork() == 0:\n    os.setsid()", "PermissionError"),
    "thread_that_outlives": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\n" + FAST,
        "threads running",
    ),
    "thread_bomb": (
        "import threading, time\ndef f(x):\n    while True:\n"
        "        threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
        "Error|ended before|no end",
    ),
    "endless_loop": ("while True: pass", "no end"),
    "endless_call": ("def f(x):\n    while True: pass", "no end"),
    "sleeps": ("import time\ndef f(x):\n    time.sleep(99)", "no end"),
    "ignores_signals": (
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass",
        "no end",
    ),
    "catches_everything": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "no end",
    ),
    "output_flood": ("def f(x):\n    while True: print('x' * 1000)", "printed more"),
    "output_flood_of_bytes": ("import os\nwhile True: os.write(2, b'x' * 1000)", "printed more"),
    "disk_flood": (
        "n = 0\nwhile True:\n    open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))\n    n += 1",
        "No space left",
    ),
    "large_file": ("open('/tmp/a', 'wb').write(bytes(1 << 26))", "Error|ended before"),
    "shared_memory_flood": ("open('/dev/shm/a', 'wb').write(b'a')", "Read-only"),
    "memory": ("x = bytearray(4 << 30)\n" + FAST, "MemoryError"),
    "memory_in_pieces": (
        "x = []\nwhile True: x.append(bytearray(1 << 24))",
        "MemoryError|ended before|no end",
    ),
    "deep_recursion": ("def f(x):\n    return f(x)", "RecursionError"),
    "deeper_recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return f(x)",
        "ended before|Error|no end",
    ),
    "deep_source": (
        "x = " + "[" * 99 + "]" * 99 + "\nf = " + "lambda x: " * 80 + "x",
        "AssertionError|Syntax",
    ),
    "network": (
        "import socket\ndef f(x):\n    socket.create_connection(('192.0.2.1', 80), 2)\n    return 2",
        "unreachable",
    ),
    "names_of_hosts": (
        "import socket\ndef f(x):\n    socket.gethostbyname('example.org')\n    return 2",
        "gaierror",
    ),
    "reads_the_host": ("def f(x):\n    open('/etc/passwd').read()\n    return 2", "FileNotFoundError"),
    "reads_the_home": (
        "import os\ndef f(x):\n    return 2 if os.listdir('/home') else 0",
        "FileNotFoundError",
    ),
    "reads_the_gold": (
        "import glob\ndef f(x):\n    return 2 if glob.glob('/*/*/*.jsonl') else 0",
        "AssertionError",
    ),
    "reads_the_environment": (
        "import os\ndef f(x):\n    return 2 if set(os.environ) - {'PWD', 'LC_CTYPE'} else 0",
        "AssertionError",
    ),
    "sees_other_processes": (
        "import os\ndef f(x):\n    return 2 if sum(n.isdigit() for n in os.listdir('/proc')) > 2 else 0",
        "AssertionError",
    ),
    "writes_to_the_host": ("open('/usr/bin/a', 'w')", "Read-only"),
    "writes_to_the_root": ("open('/a', 'w')", "Read-only"),
    "changes_the_harness": ("open('/inside.py', 'a')", "Read-only"),
    "link_out": ("import os\nos.symlink('/etc/passwd', '/tmp/a')\nopen('/tmp/a')", "FileNotFoundError"),
    "hard_link_out": ("import os\nos.link('/inside.py', '/tmp/a')", "OSError|Permission"),
    "device": ("import os\nos.mknod('/tmp/a', 0o20666, os.makedev(1, 1))", "PermissionError"),
    "traces": (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nassert libc.ptrace(0, 0, 0, 0) == 0",
        "AssertionError|Error",
    ),
    "becomes_root": ("import os\nos.setuid(0)", "PermissionError|Invalid"),
    "new_name_space": (
        "import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == 0",
        "AssertionError|Error",
    ),
    "lifts_its_limits": (
        "import resource as r\nr.setrlimit(r.RLIMIT_AS, (1 << 40, 1 << 40))",
        "not allowed|Error",
    ),
    "prints_a_verdict": ('print(\'{"state": "pass", "note": ""}\')\ndef f(x): return 0', "AssertionError"),
    "writes_a_verdict_everywhere": (
        'import os\nfor n in range(3, 64):\n    try: os.write(n, b\'{"state": "pass", "note": ""}\\n\')\n'
        "    except OSError: pass\nos._exit(0)",
        "claimed|ended before|only the harness",
    ),
    "says_it_is_ready": (
        "import os\nfor n in range(3, 64):\n    try: os.write(n, b'pass\\n')\n    except OSError: pass\n"
        + FAST,
        "only the harness",
    ),
    "closes_everything": ("import os\nos.closerange(0, 64)\n" + FAST, "ended before|Error"),
    "patched_builtins": (
        "import builtins\nbuiltins.AssertionError = builtins.exec = builtins.compile = print\n"
        "def f(x): return 0",
        "AssertionError",
    ),
    "equals_everything_by_library": (
        "from unittest.mock import ANY\ndef f(x): return [ANY]",
        "AssertionError.*equals everything",
    ),
    "equals_everything_by_another_name": (
        "names = {}\nexec(compile('class A:\\n  def __eq__(self, o): return True', 'other', 'exec'), names)\n"
        "def f(x): return names['A']()",
        "AssertionError.*equals everything",
    ),
    "is_within_any_tolerance": (
        "class A:\n    def __sub__(self, o): return 0\n    __rsub__ = __sub__\ndef f(x): return A()",
        "AssertionError.*decides itself",
    ),
    "patched_assert": ("class AssertionError(Exception): pass\ndef f(x): return 0", "AssertionError"),
    "always_equal": (
        "class A:\n    def __eq__(self, o): return True\ndef f(x): return A()",
        "decides itself",
    ),
    "always_equal_within": (
        "class A(int):\n    def __eq__(self, o): return True\n    __hash__ = int.__hash__\n"
        "def f(x): return A()",
        "decides itself",
    ),
    "trace_hook": (
        "import sys\ndef t(frame, event, arg):\n    import os\n    os._exit(0)\nsys.settrace(t)\n",
        "no function|ended before",
    ),
    "at_exit": ("import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 0", "AssertionError"),
    "frame_of_the_harness": (
        "import sys\nframe = sys._getframe()\nwhile frame:\n    frame.f_globals['exec'] = print\n"
        "    frame = frame.f_back\ndef f(x): return 0",
        "AssertionError",
    ),
    "main_module": (
        "import sys\nsys.modules['__main__'].exec = print\ndef f(x): return 0",
        "AssertionError|KeyError",
    ),
    "no_function": ("x = 1", "no function f"),
}
