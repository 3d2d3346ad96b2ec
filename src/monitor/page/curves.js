// The charts of the views Curves and Speed: which fields they show, fetching what they need, zoom.

import { Chart, kindOf, nameOf } from './chart.js';
import * as store from './store.js';

const CURVES = ['nll', 'valid_nll', 'valid_bleu', 'valid_f1_macro', 'valid_accuracy', 'valid_auc', 'valid_pearson', 'valid_mae',
  'target_tokens_per_s', 'texts_per_s', 'lr', 'grad_norm'];
const SPEED = ['target_tokens_per_s', 'tokens_per_s', 'texts_per_s', 'steps_per_s', 'tflops_per_s', 'mfu'];
// Translations alone have the former, runs on texts (classify, mlm) the latter; texts_per_s tells them apart.
const OF_PAIRS = ['valid_bleu', 'target_tokens_per_s'];
const OF_TEXTS = ['valid_f1_macro', 'valid_accuracy', 'valid_auc', 'valid_pearson', 'valid_mae', 'tokens_per_s', 'texts_per_s'];
const PARTS = [['data_wait_ms', 'waiting for data', '#b8860b'], ['forward_ms', 'forward', '#1f77d0'],
  ['backward_ms', 'backward', '#8a63d2'], ['comm_wait_ms', 'all-reduce not hidden', '#d0393b'],
  ['update_ms', 'update', '#2c9a4b'], ['checkpoint_ms', 'checkpoints', '#7d6a5d']];

let nextDrawing = 0; // while curves come in: when to draw again

let charts = new Map(); // by field; of the view that is shown
let shownView = '';
let zoom = null; // the range of the axis that all charts show; null: everything
let zoomTimer = 0;

export function isZoomed() {
  return zoom !== null;
}

export function setZoom(range) {
  zoom = range;
  for (const run of store.runs.values()) run.zoomed = {};
  document.getElementById('reset').disabled = !zoom;
  drawCharts();
  clearTimeout(zoomTimer);
  if (zoom) zoomTimer = setTimeout(fetchDetails, 150);
}

// The names of the columns of each selected run; of a run that is not known yet, none.
function selectedColumns() {
  return store.selectedRuns().map(run => new Set(Object.values(run.info?.columns || {}).flat()));
}

// Whether one of the runs with these columns has this field or, as far as is known, may get it.
function isOfUse(field, columns) {
  if (OF_PAIRS.includes(field)) return !columns.length || columns.some(names => !names.has('texts_per_s'));
  return !OF_TEXTS.includes(field) || columns.some(names => names.has('texts_per_s') && names.has(field));
}

// The fields that have a chart. Goes through all selected runs: call it once, not for each run or field.
function fieldsOf(view, columns = selectedColumns()) {
  const fields = (view === 'curves' ? CURVES : SPEED).filter(field => isOfUse(field, columns));
  return view === 'curves' ? [...fields, ...store.settings.extra.filter(name => !fields.includes(name))] : fields;
}

// The fields of a kind that the view needs. Validations and averages are few: all come together.
function neededFields(view) {
  const needed = { train: [], valid: [], average: [] };
  for (const field of fieldsOf(view)) needed[kindOf(field)].push(field);
  return needed;
}

export function closeCurve(field) {
  store.settings.extra = store.settings.extra.filter(other => other !== field);
  charts.get(field)?.remove();
  charts.delete(field);
  store.writeAddress();
}

// The card before which that of fields[place] belongs, or undefined.
function nextCard(fields, place) {
  const next = fields.slice(place + 1).find(field => charts.has(field));
  return charts.get(next ?? 'parts')?.card;
}

// Makes the charts of a view that are missing, and removes those that are no longer of use. Returns true
// if one was made.
function makeCharts(view) {
  if (shownView !== view) {
    for (const chart of charts.values()) chart.remove();
    charts = new Map();
    shownView = view;
  }
  const fields = fieldsOf(view);
  for (const [field, chart] of charts) {
    if (field === 'parts' || fields.includes(field)) continue;
    chart.remove();
    charts.delete(field);
  }
  const parent = document.getElementById(view);
  const axis = () => store.settings.axis;
  const missing = fields.filter(field => !charts.has(field));
  for (const field of missing) {
    const isExtra = store.settings.extra.includes(field);
    charts.set(field, new Chart(parent, {
      title: nameOf(field), axis, onZoom: setZoom, includesZero: view === 'speed',
      onClose: isExtra ? () => closeCurve(field) : null, before: nextCard(fields, fields.indexOf(field)),
    }));
  }
  if (view === 'speed' && !charts.has('parts'))
    charts.set('parts', new Chart(parent, {
      title: 'Parts of a step on rank 0, in ms', axis, onZoom: setZoom, isStacked: true, hasKey: true,
    }));
  return missing.length > 0;
}

// Finds the step at a place of another axis, or the place of a step.
function convert(series, from, to, value) {
  const a = series[from], b = series[to];
  let low = 0, high = a.length - 1;
  if (high < 0) return null;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (a[middle] < value) low = middle + 1;
    else high = middle;
  }
  if (low === 0) return b[0];
  const share = Math.min(1, (value - a[low - 1]) / (a[low] - a[low - 1] || 1));
  return b[low - 1] + share * (b[low] - b[low - 1]);
}

async function fetchDetails() {
  const view = shownView, range = zoom;
  const { axis } = store.settings;
  const tasks = [];
  const needed = Object.entries(neededFields(view));
  for (const run of store.selectedRuns()) {
    for (const [kind, fields] of needed) {
      const series = run.series[kind];
      if (!fields.length || !series || !series.step.length) continue;
      const [from, to] = range.map(x => (axis === 'step' ? x : convert(series, axis, 'step', x)));
      tasks.push(() => store.fetchZoom(run, kind, fields, Math.max(0, from), Math.max(0, to)).catch(() => {}));
    }
  }
  await store.inParallel(tasks);
  if (zoom === range && shownView === view) drawCharts();
}

function seriesOf(run, kind) {
  return (zoom && run.zoomed[kind]) || run.series[kind];
}

function lineOf(run, field) {
  const series = seriesOf(run, kindOf(field));
  return { name: run.name, colour: run.colour, x: series ? series[store.settings.axis] : [], column: series?.columns[field] };
}

// Restarts and roll-backs of the selected runs, if these are few.
function marksOf(selected) {
  const marks = [];
  if (selected.length > 6) return marks;
  for (const run of selected) {
    const series = run.series.train;
    if (!series || !series.step.length) continue;
    for (const event of run.info?.events || []) {
      const { axis } = store.settings;
      const x = axis === 'step' ? event.step : convert(series, 'step', axis, event.step);
      if (x !== null) marks.push({ x, colour: run.colour });
    }
  }
  return marks;
}

// Lets the page do other things most of the time, however long a drawing takes.
function measureDrawing() {
  const begin = performance.now();
  nextDrawing = Infinity;
  requestAnimationFrame(() => setTimeout(() => {
    const now = performance.now();
    nextDrawing = now + Math.max(200, 4 * (now - begin));
  }));
}

export function drawCharts() {
  measureDrawing();
  const selected = store.selectedRuns();
  const { smooth, log } = store.settings;
  const marks = marksOf(selected);
  const isLoading = selected.some(run => !run.series.train);
  const why = selected.length === 0 ? 'No run is selected.' : isLoading ? 'Reading…' : '';
  for (const [field, chart] of charts) {
    if (field === 'parts') continue;
    chart.show(selected.map(run => lineOf(run, field)), { smooth, log, window: zoom, marks, why });
  }
  const run = store.focusedRun();
  const series = run?.parts;
  charts.get('parts')?.show(!series ? [] : PARTS.map(([field, name, colour]) =>
    ({ name, colour, x: series[store.settings.axis], column: series.columns[field] })),
  { smooth, log: false, window: zoom, marks: [], why: 'Unknown: the run has not recorded it.' });
}

// Keeps the parts of a step apart from other curves: only the run in focus has them.
async function fetchParts(run) {
  const holder = { id: run.id, series: { train: run.parts } };
  await store.fetchSeries(holder, 'train', PARTS.map(part => part[0]));
  run.parts = holder.series.train;
}

// Fetches what is new for a view and draws it.
export async function refreshCurves(view) {
  makeCharts(view);
  await fetchView(view);
  // The columns of a run, which come with its curves, may make other charts of use.
  if (makeCharts(view)) await fetchView(view);
}

async function fetchView(view) {
  const needed = neededFields(view);
  const selected = store.selectedRuns();
  const tasks = [];
  let hasChanged = false, failure = null;
  // Training curves of all runs come first, and are drawn as they come.
  for (const [kind, fields] of Object.entries(needed)) {
    for (const run of selected) {
      const series = run.series[kind];
      if (!fields.length || (series && !run.isStale && series.names === fields.join(','))) continue;
      tasks.push(async () => { hasChanged = await store.fetchSeries(run, kind, fields) || hasChanged; });
    }
  }
  for (const run of selected)
    if (run.isInfoStale || !run.info) tasks.push(async () => { await store.fetchInfo(run); hasChanged = true; });
  const focused = store.focusedRun();
  if (view === 'speed' && focused)
    tasks.push(async () => { await fetchParts(focused); hasChanged = true; });
  selected.forEach(run => { run.isStale = false; });
  const fail = error => {
    failure = error;
    selected.forEach(run => { run.isStale = true; }); // asks again later
  };
  await store.inParallel(tasks.map(task => async () => {
    await task().catch(fail);
    if (!hasChanged || performance.now() < nextDrawing) return;
    drawCharts();
    hasChanged = false;
  }));
  if (hasChanged) drawCharts();
  if (failure) throw failure;
}

// The names of columns that have no chart yet.
export function otherColumns() {
  const columns = selectedColumns();
  const shown = new Set(fieldsOf('curves', columns));
  const all = new Set(columns.flatMap(names => [...names]));
  return [...all].filter(name => !shown.has(name)).sort();
}
