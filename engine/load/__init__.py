"""The load profile: many clients against a running server, and what a token costs beside the bare model."""
