"""How a tab gets in, stays in touch, and finds the daemon again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import WebSocket, WebSocketRoute

    from web.conftest import Site


def test_the_link_signs_in_and_the_token_leaves_the_address(site: Site) -> None:
    page = site.tab()
    assert "token" not in page.url
    assert page.evaluate("localStorage.getItem('stoker.token')") == site.token
    assert page.context.cookies() == []
    assert site.token not in "".join(site.requests)


def test_without_the_token_the_page_says_where_to_get_it_and_accepts_the_link(site: Site) -> None:
    page = site.blank_tab()
    page.goto(site.url)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Link or token").fill("http://127.0.0.1:1/#token=wrong")
    page.get_by_role("button", name="Open", exact=True).click()
    expect(page.locator(".link.unproven")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("This daemon has another token")
    page.evaluate("link => { location.href = link; }", site.link)
    expect(page.get_by_role("heading", name="GPUs")).to_be_visible()
    assert "token" not in page.url


def test_notices_and_the_time_that_is_left_are_shown(site: Site) -> None:
    def answer(text: str | bytes) -> str | bytes:
        told = str(text).replace('"notices":[]', '"notices":["GPU 3 is gone"]')
        return told.replace('"eta_s":null', '"eta_s":1080')

    def relay(tab: WebSocketRoute) -> None:
        daemon = tab.connect_to_server()
        daemon.on_message(lambda text: tab.send(answer(text)))

    page = site.blank_tab()
    page.route_web_socket("**/v1/live", relay)
    page.goto(site.link)
    expect(page.locator(".notice")).to_have_text("GPU 3 is gone")
    expect(page.locator(".counts")).to_contain_text("~18m left")


def test_a_new_token_ends_the_old_links(own_site: Site) -> None:
    site = own_site
    page = site.tab()
    link = site.open("--new-token")
    expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()
    page.get_by_label("Link or token").fill(link)
    page.get_by_label("Link or token").press("Enter")
    expect(page.locator(".link.open")).to_be_visible()


def test_a_tab_finds_the_daemon_again_after_a_restart(own_site: Site) -> None:
    site = own_site
    page = site.tab("/jobs")
    site.queue.add("-N", "before", "sleep", "60")
    expect(page.get_by_role("cell", name="before")).to_be_visible()
    site.queue.ok("daemon", "stop")
    expect(page.get_by_text("Cannot reach the daemon")).to_be_visible()
    site.queue.ok("daemon", "start")
    expect(page.locator(".link.open")).to_be_visible()
    site.queue.add("-N", "after", "sleep", "60")
    expect(page.get_by_role("cell", name="after")).to_be_visible()
    # Other tabs of this browser get in by the new token.
    assert page.evaluate("localStorage.getItem('stoker.token')") == site.open().partition("=")[2]
    other = page.context.new_page()
    other.goto(f"{site.url}#/jobs")
    expect(other.get_by_role("cell", name="after")).to_be_visible()
    page.get_by_role("button", name="Pause queue").click()
    expect(page.get_by_role("button", name="Resume queue")).to_be_visible()
    site.queue.ok("kill", "--all")


def test_no_secret_is_sent_and_no_request_without_a_signature(site: Site) -> None:
    page = site.blank_tab()
    sent: list[str] = []

    def hear(socket: WebSocket) -> None:
        socket.on("framesent", lambda frame: sent.append(str(frame)))

    page.on("websocket", hear)
    page.on("request", lambda request: sent.append(str(request.all_headers())))
    page.goto(site.link)
    with page.expect_request(f"{site.url}v1/pause"):
        page.get_by_role("button", name="Pause queue").click()
    expect(page.get_by_role("button", name="Resume queue")).to_be_visible()
    assert site.token not in "".join(sent)
    (first, second, *others) = [each for each in sent if each.startswith('{"type"')]
    assert first.startswith('{"type":"hello","nonce"')
    assert second.startswith('{"type":"prove"')
    assert others == []
    asked = [url for url in site.requests if "/v1/" in url]
    assert sum("'authorization': 'Stoker " in each for each in sent) == len(asked) >= 1


def test_a_tab_that_missed_a_restart_says_that_its_link_is_invalid(own_site: Site) -> None:
    site = own_site
    page = site.tab("/jobs")
    page.goto("about:blank")
    site.queue.ok("daemon", "restart")
    page.goto(site.url)
    expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()
    page.goto(site.open())
    expect(page.locator(".link.open")).to_be_visible()


def test_twelve_tabs_are_live_at_once(site: Site) -> None:
    context = site.tab("/jobs").context
    pages = [context.new_page() for _ in range(12)]
    for page in pages:
        page.goto(f"{site.url}#/jobs")
    job = site.queue.add("-N", "everywhere", "-g", "0", "sleep", "60")
    for page in pages:
        expect(page.locator(f"tr[data-job='{job}'] .state")).to_have_text("running")
    site.queue.ok("kill", "--all")


def test_a_closed_page_is_not_served(own_site: Site) -> None:
    site = own_site
    page = site.tab()
    assert site.queue.ok("web", "--close") == "the page is closed\n"
    expect(page.get_by_text("Cannot reach the daemon")).to_be_visible()
