/** Light or dark theme: that of the system, until the user chooses one. */

const KEY = 'stoker.theme';
const ORDER = ['system', 'light', 'dark'];

/** Apply the stored theme. */
export function applyTheme() {
  const chosen = theme();
  if (chosen === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

/** The chosen theme. */
export function theme() {
  const kept = localStorage.getItem(KEY) ?? 'system';
  return ORDER.includes(kept) ? kept : 'system';
}

/** Change to the next theme. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length] ?? 'system';
  localStorage.setItem(KEY, next);
  applyTheme();
  return next;
}
