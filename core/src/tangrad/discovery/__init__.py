"""Find, load and isolate what other distributions add to tangrad.

`discovery` reads entry points and keeps failures, `hooks` calls the 1:N hooks that `hookspecs`
documents, `namespaces` answers for `tangrad.<name>`. Nothing here is loaded before it is needed.
"""

from __future__ import annotations

#: Version of the plugin interface; a plugin module says `API = 1` for the one it was made for.
API_VERSION = 1

#: The oldest version whose plugins still work: a version is deprecated, with a warning, for one
#: minor release before it is dropped.
OLDEST_API_VERSION = 1
