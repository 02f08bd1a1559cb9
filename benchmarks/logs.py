"""Time until the page shows a long log with colours: after its bytes arrive, and after the click."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

LINES = 50_000
_CHUNK_BYTES = 64 * 1024
# Writes that log.
COMMAND = (
    f"seq 0 {LINES - 1} | sed"
    r" 's/.*/\x1b[32mstep &\x1b[0m loss \x1b[1;31m&\x1b[0m and more of a line/'"
)

# From the first bytes to the frame in which the last line is in the document.
_TIME = """async ([lines, chunk]) => {
  const {logView} = await import('/lib/logview.js');
  const {scope} = await import('/lib/signal.js');
  const green = (text) => `\\x1b[32m${text}\\x1b[0m`;
  const red = (text) => `\\x1b[1;31m${text}\\x1b[0m`;
  const row = (number) => `${green(`step ${number}`)} loss ${red(number)} and more of a line\\n`;
  const rows = Array.from({length: lines}, (_, number) => row(number));
  const bytes = new TextEncoder().encode(rows.join(''));
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  let reader;
  const [view, end] = scope(() => logView({source: (it) => (reader = it)}));
  document.querySelector('main').append(view);
  await frame();
  const began = performance.now();
  for (let at = 0; at < bytes.length; at += chunk) reader.data(bytes.subarray(at, at + chunk));
  while (!view.textContent.includes(`step ${lines - 1}`)) await frame();
  const spent = performance.now() - began;
  end();
  view.remove();
  return spent;
}"""

# From the wish to see a job to the frame in which the last line of its log is in the document.
_OPEN = """async ([hash, last]) => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const began = performance.now();
  location.hash = hash;
  while (!document.querySelector('.log-view')?.textContent.includes(last)) await frame();
  return performance.now() - began;
}"""


def time_opening(page: Page, job: int) -> float:
    """Milliseconds until the page of a job that ran `COMMAND` shows the end of its log."""
    return float(page.evaluate(_OPEN, [f"/jobs/{job}", f"step {LINES - 1} "]))


def time_log(page: Page) -> float:
    """Milliseconds until the end of a long log is shown."""
    return float(page.evaluate(_TIME, [LINES, _CHUNK_BYTES]))
