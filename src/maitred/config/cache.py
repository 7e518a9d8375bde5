"""How prefixes in the engines' caches are used: between whom they are shared."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import choice
from maitred.config.secret import SECRET, Secret
from maitred.config.setting import Setting

TENANT = "tenant"


class Cache(Struct, frozen=True):
    """One model's cache of prefixes."""

    isolate: Annotated[
        str,
        Setting(
            "isolate",
            choice("none", TENANT),
            "`tenant`: no tenant finds what another has asked. The engine gets a `cache_salt` for each; "
            "prompts that all have in common are computed and kept once for every tenant.",
        ),
    ] = "none"
    secret: Annotated[
        Secret | None,
        Setting(
            "secret",
            SECRET,
            "What these salts are made with, as `{env: NAME}` or `{file: PATH}`. Several gateways before the "
            "same engines need the same.",
            "drawn at each start, which then finds cold caches",
        ),
    ] = None
