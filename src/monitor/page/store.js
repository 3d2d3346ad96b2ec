// What the page knows: the list of runs, which are selected, their curves, the settings. Fetches
// from the board, each time only what is new.

const COLOURS = ['#1f77d0', '#e0651b', '#2c9a4b', '#c63d8f', '#8a63d2', '#b8860b', '#0f9aa8', '#d0393b',
  '#6b8e23', '#7d6a5d'];

export const settings = {
  tab: 'curves', axis: 'step', smooth: 0, log: false, focus: '', extra: [], differences: false,
  selected: null, // null: the runs that were written last
};
export const runs = new Map(); // by id
export let directory = '', isSearched = false, isCut = false, clockOffset = 0;
let version = 0;

// Reads the settings from the address, so that a reload or a bookmark shows the same.
export function readAddress() {
  const hash = new URLSearchParams(location.hash.slice(1));
  for (const name of ['tab', 'axis', 'focus']) if (hash.get(name)) settings[name] = hash.get(name);
  settings.smooth = Math.min(0.99, Math.max(0, Number(hash.get('smooth')) || 0));
  settings.log = hash.get('log') === '1';
  settings.differences = hash.get('differences') === '1';
  if (hash.get('extra')) settings.extra = hash.get('extra').split(',').slice(0, 20);
  if (hash.has('runs')) settings.selected = new Set(hash.get('runs').split(',').filter(Boolean));
}

// Writes the settings to the address; this also removes the token from it.
export function writeAddress() {
  const hash = new URLSearchParams();
  hash.set('tab', settings.tab);
  hash.set('axis', settings.axis);
  if (settings.smooth) hash.set('smooth', settings.smooth);
  if (settings.log) hash.set('log', '1');
  if (settings.differences) hash.set('differences', '1');
  if (settings.focus) hash.set('focus', settings.focus);
  if (settings.extra.length) hash.set('extra', settings.extra.join(','));
  if (settings.selected) hash.set('runs', [...settings.selected].join(','));
  history.replaceState(null, '', location.pathname + '#' + hash);
}

export async function fetchJson(path, query) {
  const answer = await fetch(path + '?' + new URLSearchParams(query), { cache: 'no-store' });
  if (!answer.ok) throw new Error((await answer.text()).trim() || 'status ' + answer.status);
  return answer.json();
}

// Fetches curves. Their columns have names that the run has chosen, such as "constructor", so the object
// with them has no prototype.
export async function fetchCurves(path, query) {
  const answer = await fetchJson(path, query);
  answer.columns = Object.assign(Object.create(null), answer.columns);
  return answer;
}

function pickColour(place) {
  if (place < COLOURS.length) return COLOURS[place];
  return `hsl(${Math.round(place * 137.5) % 360} 60% ${45 + (place % 3) * 8}%)`;
}

// Fetches the runs that have changed; returns them.
export async function fetchRuns() {
  const answer = await fetchJson('api/runs', { since: version });
  if (answer.version < version) { // the board was started again
    version = 0;
    runs.clear();
    return fetchRuns();
  }
  version = answer.version;
  directory = answer.dir;
  isSearched = answer.searched;
  isCut = answer.cut;
  clockOffset = answer.now - Date.now() / 1000;
  for (const run of answer.runs) {
    const old = runs.get(run.id);
    runs.set(run.id, Object.assign(old || { colour: pickColour(runs.size), series: {}, zoomed: {} }, run, { isStale: true, isInfoStale: true }));
  }
  return answer.runs;
}

// localeCompare() makes such a collator anew for each comparison.
const collator = new Intl.Collator('en', { numeric: true });

function sortByName(list) {
  return list.sort((a, b) => collator.compare(a.name, b.name));
}

export function sortedRuns() {
  return sortByName([...runs.values()]);
}

const LATEST = 10; // runs that are selected when the page is opened

// Sorts runs: call it once, not for each run or field.
export function selectedRuns() {
  const { selected } = settings;
  if (selected) return sortByName([...runs.values()].filter(run => selected.has(run.id)));
  return sortByName([...runs.values()].filter(run => run.written).sort((a, b) => b.written - a.written).slice(0, LATEST));
}

export function focusedRun() {
  return runs.get(settings.focus) || selectedRuns()[0] || sortedRuns()[0];
}

// Fetches what the board knows of runs beside their curves, if it has changed.
export async function fetchInfo(run) {
  run.isInfoStale = false;
  try {
    run.info = await fetchJson('api/run', { run: run.id });
  } catch (error) {
    run.isInfoStale = true;
    throw error;
  }
}

// Fetches curves of one kind (train, valid, average) of a run, so that run.series[kind] has the
// fields. Returns true if something changed.
export async function fetchSeries(run, kind, fields) {
  const old = run.series[kind];
  const names = fields.join(',');
  const known = old && old.names === names ? old : null;
  const answer = await fetchCurves('api/series', {
    run: run.id, kind, fields: names, epoch: known ? known.epoch : '', have: known ? known.step.length : 0,
  });
  if (known && known.epoch === answer.epoch) return appendBuckets(known, answer);
  run.series[kind] = Object.assign(answer, { names });
  return true;
}

// Replaces the buckets from answer.from on.
export function appendBuckets(known, answer) {
  const last = known.step.length - 1;
  const isSame = answer.step.length === 1 && answer.from === last && answer.step[0] === known.step[last];
  known.exact = answer.exact;
  for (const axis of ['step', 'seconds', 'tokens']) {
    known[axis].length = answer.from;
    known[axis].push(...answer[axis]);
  }
  for (const [name, column] of Object.entries(answer.columns)) {
    const old = known.columns[name] || (known.columns[name] = {});
    for (const what of Object.keys(column)) {
      const values = old[what] || (old[what] = []);
      while (values.length < answer.from) values.push(null);
      values.length = answer.from;
      values.push(...column[what]);
    }
  }
  return !isSame;
}

// Fetches the records between two steps with all details, if the file has more than is shown.
export async function fetchZoom(run, kind, fields, from, to) {
  const all = run.series[kind];
  if (!all || all.each === 1) return false;
  const answer = await fetchCurves('api/series', {
    run: run.id, kind, fields: fields.join(','), from: Math.floor(from), to: Math.ceil(to),
  });
  run.zoomed[kind] = answer.zoomed ? answer : null;
  return true;
}

// Runs tasks, six at a time, as many connections as a browser opens.
export async function inParallel(tasks) {
  const rest = tasks.slice();
  const work = async () => {
    while (rest.length) await rest.shift()();
  };
  await Promise.all(Array.from({ length: 6 }, work));
}
