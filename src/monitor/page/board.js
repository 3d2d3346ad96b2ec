// Starts the page: the list of runs, tabs, controls, and the loop that asks for what is new.

import { formatNumber, formatSeconds, makeSwatch, nameOf } from './chart.js';
import { drawCharts, isZoomed, otherColumns, refreshCurves, setZoom } from './curves.js';
import { fillSelect, showEvents, showHosts, showOptions, showRanks, showSamples } from './panels.js';
import * as store from './store.js';

const { settings } = store;
const get = id => document.getElementById(id);
const TABS = ['curves', 'speed', 'hosts', 'samples', 'options', 'events'];
const PERIOD = 2000; // ms between two requests

// The list of runs: one item for each, changed in place.

const items = new Map();

function makeItem(run) {
  const item = document.createElement('li');
  const label = document.createElement('label');
  const box = document.createElement('input');
  box.type = 'checkbox';
  const swatch = makeSwatch(run.colour);
  const name = document.createElement('span');
  name.className = 'name';
  name.textContent = run.name === '.' ? 'this directory' : run.name;
  const facts = document.createElement('span'), age = document.createElement('span');
  const line = document.createElement('div');
  line.className = 'facts';
  line.append(facts, age);
  label.append(box, swatch, name);
  item.append(label, line);
  box.addEventListener('change', () => selectRun(run.id, box.checked));
  return { item, box, facts, age, swatch };
}

function selectRun(id, isSelected) {
  settings.selected ||= new Set(store.selectedRuns().map(run => run.id));
  if (isSelected) settings.selected.add(id);
  else settings.selected.delete(id);
  changeSettings();
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function describeRun(run) {
  const parts = [];
  if (run.step !== undefined)
    parts.push('step ' + formatNumber(run.step) + (run.steps ? ' of ' + formatNumber(run.steps) : ''));
  if (run.nll !== undefined) parts.push('loss ' + formatNumber(run.nll));
  if (run.valid_bleu !== undefined) parts.push('BLEU ' + run.valid_bleu.toFixed(1));
  if (run.valid_f1_macro !== undefined) parts.push('macro-F1 ' + run.valid_f1_macro.toFixed(3));
  if (run.valid_pearson !== undefined) parts.push('correlation ' + run.valid_pearson.toFixed(3));
  return parts.join(', ') || 'nothing recorded yet';
}

function describeAge(run) {
  if (run.gone) return 'gone: its directory was deleted';
  if (!run.written) return 'not started';
  const age = Date.now() / 1000 + store.clockOffset - run.written;
  return age < 30 ? 'live' : 'last record ' + formatSeconds(age).replace(/ \d+ (s|min)$/, '') + ' ago';
}

function showRuns() {
  const list = get('run-list');
  const wanted = get('filter').value.toLowerCase();
  const selected = new Set(store.selectedRuns());
  let place = null;
  for (const run of store.sortedRuns()) {
    if (!items.has(run.id)) items.set(run.id, makeItem(run));
    const { item, box, facts, age, swatch } = items.get(run.id);
    const next = place ? place.nextSibling : list.firstChild;
    if (next !== item) list.insertBefore(item, next);
    place = item;
    box.checked = selected.has(run);
    item.hidden = !run.name.toLowerCase().includes(wanted);
    item.className = run.gone ? 'gone' : '';
    swatch.style.background = box.checked ? run.colour : 'transparent';
    setText(facts, describeRun(run) + ' · ');
    setText(age, describeAge(run));
    age.className = age.textContent === 'live' ? 'live' : '';
  }
  for (const [id, parts] of items) {
    if (store.runs.has(id)) continue;
    parts.item.remove();
    items.delete(id);
  }
  setText(get('run-count'), `${store.runs.size}, ${selected.size} shown`);
  setText(get('directory'), store.directory);
  const text = !store.isSearched ? 'Searching for runs…'
    : store.runs.size === 0 ? `There is no run below ${store.directory}: no directory with a metrics.jsonl or config.`
      : store.isCut ? 'There are more directories than the board searches; give it one further down.' : '';
  get('run-note').hidden = !text;
  setText(get('run-note'), text);
}

// Tabs and controls

function showTab() {
  if (!TABS.includes(settings.tab)) settings.tab = 'curves';
  for (const tab of TABS) {
    const isShown = tab === settings.tab;
    get('view-' + tab).hidden = !isShown;
    get('tab-' + tab).setAttribute('aria-selected', isShown);
    get('tab-' + tab).tabIndex = isShown ? 0 : -1;
  }
  const hasCharts = ['curves', 'speed'].includes(settings.tab);
  document.querySelectorAll('.for-charts').forEach(element => { element.hidden = !hasCharts; });
  get('focus-label').hidden = !['speed', 'hosts', 'samples'].includes(settings.tab);
}

function showControls() {
  get('axis').value = settings.axis;
  get('smooth').value = settings.smooth;
  setText(get('smooth-value'), String(settings.smooth));
  get('log').checked = settings.log;
  get('differences').checked = settings.differences;
  const selected = new Set(store.selectedRuns());
  const choices = [...selected, ...store.sortedRuns().filter(run => !selected.has(run))];
  fillSelect(get('focus'), choices.slice(0, 500).map(run => [run.id, run.name]), store.focusedRun()?.id);
  const columns = otherColumns().map(name => [name, nameOf(name)]);
  fillSelect(get('add-curve'), [['', 'choose…'], ...columns], '');
}

// After the user has changed something: shows it at once, then fetches what is missing.
function changeSettings() {
  store.writeAddress();
  showTab();
  showRuns();
  showControls();
  drawCharts();
  refresh();
}

function listenToControls() {
  const onChange = (id, change) => get(id).addEventListener('change', event => { change(event.target); changeSettings(); });
  onChange('axis', element => { settings.axis = element.value; setZoom(null); });
  onChange('log', element => { settings.log = element.checked; });
  onChange('differences', element => { settings.differences = element.checked; });
  onChange('focus', element => { settings.focus = element.value; });
  onChange('host', () => {});
  onChange('sample-step', () => {});
  onChange('add-curve', element => { if (element.value) settings.extra.push(element.value); });
  get('smooth').addEventListener('input', event => {
    settings.smooth = Number(event.target.value);
    setText(get('smooth-value'), String(settings.smooth));
    drawCharts();
  });
  get('smooth').addEventListener('change', store.writeAddress);
  get('reset').addEventListener('click', () => setZoom(null));
  get('filter').addEventListener('input', showRuns);
  const selectShown = isSelected => {
    const shown = store.sortedRuns().filter(run => !items.get(run.id)?.item.hidden);
    settings.selected ||= new Set(store.selectedRuns().map(run => run.id));
    for (const run of shown) isSelected ? settings.selected.add(run.id) : settings.selected.delete(run.id);
    changeSettings();
  };
  get('select-all').addEventListener('click', () => selectShown(true));
  get('select-none').addEventListener('click', () => selectShown(false));
  listenToTabs();
}

function listenToTabs() {
  TABS.forEach((tab, i) => {
    get('tab-' + tab).addEventListener('click', () => { settings.tab = tab; changeSettings(); });
    get('tab-' + tab).addEventListener('keydown', event => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!move) return;
      settings.tab = TABS[(i + move + TABS.length) % TABS.length];
      changeSettings();
      get('tab-' + settings.tab).focus();
    });
  });
}

// The loop

let isBusy = false, isAsked = false, timer = 0;

async function fetchInfo(runs) {
  await store.inParallel(runs.filter(run => !run.info || run.isInfoStale).slice(0, 100)
    .map(run => () => store.fetchInfo(run)));
}

async function refreshView() {
  const run = store.focusedRun(), selected = store.selectedRuns();
  if (settings.tab === 'curves' || settings.tab === 'speed') await refreshCurves(settings.tab);
  if (settings.tab === 'speed') {
    if (run) await fetchInfo([run]);
    showRanks(get('ranks'), run);
  }
  if (settings.tab === 'hosts') await showHosts(get('hosts'), run);
  if (settings.tab === 'samples') await showSamples(get('samples'), run);
  if (settings.tab === 'options' || settings.tab === 'events') await fetchInfo(selected);
  if (settings.tab === 'options') showOptions(get('options'), selected);
  if (settings.tab === 'events') showEvents(get('events'), selected);
}

function showStatus(text, isBad) {
  setText(get('status'), text);
  get('status').classList.toggle('bad', isBad);
}

async function refresh() {
  if (isBusy) {
    isAsked = true;
    return;
  }
  isBusy = true;
  clearTimeout(timer);
  try {
    await store.fetchRuns();
    showRuns();
    showTab();
    await refreshView();
    showControls();
    showStatus('', false);
  } catch (error) {
    showStatus(`The board does not answer: ${error.message}`, true);
  }
  isBusy = false;
  const isInexact = store.selectedRuns().some(run => run.series.train && !run.series.train.exact);
  const wait = isAsked ? 0 : !store.isSearched ? 200 : isInexact ? 1000 : PERIOD;
  isAsked = false;
  timer = setTimeout(() => { if (!document.hidden) refresh(); }, wait);
}

store.readAddress();
store.writeAddress();
listenToControls();
showTab();
refresh();
document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawCharts);
addEventListener('resize', () => { if (isZoomed()) drawCharts(); });
if (matchMedia('(max-width: 900px)').matches) get('runs').open = false;
