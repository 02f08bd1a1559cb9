"""The page's modules in one file; that it works as they do, the tests in a browser show."""

from __future__ import annotations

import gzip

import pytest

from stoker.web.assets import load_assets
from stoker.web.bundle import bundle

MODULES = {
    "/main.js": "import {a, b as c} from '/lib/a.js';\nexport const PAGES = () => import('/page.js');\n",
    "/lib/a.js": "/** @typedef {import('/b.js').B} B */\nexport function a() {}\nexport class b {}\n",
    "/page.js": "export async function page() {}\n",
    "/unused.js": "export const none = 1;\n",
}


def test_a_bundle_contains_all_imported_modules_and_no_others() -> None:
    made = bundle(MODULES, "/main.js")
    assert "const {a, b: c} = $need('/lib/a.js');" in made
    assert "Promise.resolve($need('/page.js'))" in made
    assert "async function page() {}\n\nreturn {page};" in made
    assert "return {a, b};" in made
    assert "unused" not in made
    assert made.endswith("$need('/main.js');\n")


@pytest.mark.parametrize(
    "line",
    [
        "import '/x.js';",
        "import x from '/x.js';",
        "export default 1;",
        "export {x};",
        "export let x;",
    ],
)
def test_unsupported_module_syntax_is_refused_by_name(line: str) -> None:
    with pytest.raises(ValueError, match=r"/main\.js: a bundle cannot contain"):
        bundle({"/main.js": f"{line}\n", "/x.js": ""}, "/main.js")


def test_the_page_loads_one_script_that_contains_every_page() -> None:
    assets = load_assets()
    assert assets["/"].body.count(b"<script") == 1
    assert b'src="/all.js"' in assets["/"].body
    script = gzip.decompress(assets["/all.js"].packed).decode()
    for path in assets:
        if path.startswith("/pages/"):
            assert f"'{path}'()" in script


def test_a_bundle_leaves_comments_out_but_no_code() -> None:
    source = """\
/** Head. */

import {x} from '/x.js';

/**
 * Says x.
 * @param {string} a
 */
export function f(a) {
  // why
  /** @type {any} */ (window).y = 'http://a/**/b';
  return x(a) * 2; /* kept */
}
"""
    made = bundle({"/main.js": source, "/x.js": "export const x = 1; // kept\n"}, "/main.js")
    assert "Says x" not in made
    assert "why" not in made
    assert "(window).y = 'http://a/**/b';" in made
    assert "return x(a) * 2; /* kept */" in made
    assert "const x = 1; // kept" in made
