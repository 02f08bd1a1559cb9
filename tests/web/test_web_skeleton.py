from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from web.conftest import Site


def test_the_link_lets_in_and_the_token_leaves_the_address(site: Site) -> None:
    page = site.tab()
    assert "token" not in page.url
    assert page.evaluate("localStorage.getItem('stoker.token')") == site.token
    assert page.context.cookies() == []
