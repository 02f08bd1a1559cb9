/** What tells commands of one program apart: the options whose values differ. */

const OPTION = /^(?:--?)?([A-Za-z_][\w.-]*)=(.*)$/s;
const NAME = /^--?([A-Za-z_][\w.-]*)$/;
const LEAST = 2;

/**
 * Options and the rest of a command: `python train.py --lr 0.1 bs=4` has lr and bs.
 * @param {string} command
 */
export function readOptions(command) {
  const words = command.split(/\s+/);
  /** @type {Map<string, string>} */
  const options = new Map();
  const rest = [];
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? '';
    const next = words[at + 1];
    const [, name, value] = word.match(OPTION) ?? [];
    const flag = word.match(NAME)?.[1];
    if (name !== undefined) options.set(name, value ?? '');
    else if (flag !== undefined && word !== '-m' && word !== '-c' && next !== undefined && !/^--?[A-Za-z]/.test(next)) {
      options.set(flag, next);
      at += 1;
    } else rest.push(word);
  }
  return {program: rest.join(' '), options};
}

/** A drawn number has many digits, of which five tell runs apart. @param {string} value */
function brief(value) {
  return /^-?\d*\.\d{6,}(e[-+]?\d+)?$/i.test(value) ? String(Number(Number(value).toPrecision(5))) : value;
}

/**
 * For each job whose program others on the list have too: the options in which they differ.
 * @param {readonly {id: number, command: string}[]} jobs
 * @returns {Map<number, {program: string, varied: string}>}
 */
export function variedOptions(jobs) {
  /** @type {Map<string, {id: number, options: Map<string, string>}[]>} */
  const programs = new Map();
  for (const {id, command} of jobs) {
    const {program, options} = readOptions(command);
    const members = programs.get(program) ?? [];
    members.push({id, options});
    programs.set(program, members);
  }
  /** @type {Map<number, {program: string, varied: string}>} */
  const found = new Map();
  for (const [program, members] of programs) {
    if (members.length < LEAST) continue;
    const names = new Set(members.flatMap(({options}) => [...options.keys()]));
    const differing = [...names].filter((name) => new Set(members.map(({options}) => options.get(name))).size > 1);
    if (differing.length === 0) continue;
    for (const {id, options} of members) {
      const varied = differing.filter((name) => options.has(name)).map((name) => `${name}=${brief(options.get(name) ?? '')}`).join(' ');
      if (varied) found.set(id, {program, varied});
    }
  }
  return found;
}
