/** Light or dark: as the system has it, until a person says otherwise. */

const KEY = 'stoker.theme';
const ORDER = ['system', 'light', 'dark'];

/** Show the page as it was chosen before. */
export function applyTheme() {
  const chosen = theme();
  if (chosen === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

/** What is chosen. */
export function theme() {
  const kept = localStorage.getItem(KEY) ?? 'system';
  return ORDER.includes(kept) ? kept : 'system';
}

/** Choose the next one. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length] ?? 'system';
  localStorage.setItem(KEY, next);
  applyTheme();
  return next;
}
