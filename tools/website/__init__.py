"""The documentation site: `tox run -e site` builds it. docs/architecture.md says how and why."""
