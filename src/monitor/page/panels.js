// The views that are tables: ranks, hosts, samples, options, events. Each has a function that is given
// an element and fills it; what has not changed is left alone.

import { Chart, formatNumber, formatSeconds } from './chart.js';
import * as store from './store.js';

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function makeTable(heads, rows, className) {
  const table = make('table', undefined, className);
  const head = table.createTHead().insertRow();
  for (const name of heads) {
    const cell = make('th', name);
    cell.scope = 'col';
    head.append(cell);
  }
  const body = table.createTBody();
  for (const cells of rows) {
    const row = body.insertRow();
    cells.forEach((content, i) => {
      const cell = row.insertCell();
      cell.dataset.name = heads[i];
      cell.append(content);
    });
  }
  return table;
}

// Replaces the contents only if they differ, so that a selection in the text stays.
function fill(element, ...contents) {
  const next = document.createElement('div');
  next.append(...contents);
  if (next.innerHTML !== element.innerHTML) element.replaceChildren(...next.childNodes);
}

function note(text) {
  return make('p', text, 'note');
}

// Files of a run may have anything in the place of a list, an object or a number.
function listOf(value) {
  return Array.isArray(value) ? value : [];
}

function objectOf(value) {
  return value && typeof value === 'object' ? value : {};
}

function numbersOf(value) {
  return listOf(value).map(v => (typeof v === 'number' ? v : NaN));
}

function textOf(value) {
  return typeof value === 'string' ? value : JSON.stringify(value) ?? '';
}

export function formatBytes(bytes) {
  if (!Number.isFinite(bytes)) return 'unknown';
  for (const [unit, name] of [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']])
    if (bytes >= unit) return Number((bytes / unit).toPrecision(3)) + ' ' + name;
  return Number(bytes.toPrecision(3)) + ' B';
}

function orUnknown(value, unit) {
  return Number.isFinite(value) ? formatNumber(value) + unit : 'unknown';
}

// Times per rank

export function showRanks(element, run) {
  const ranks = run?.info?.ranks;
  const times = numbersOf(ranks?.rank_ms);
  if (!times.length) {
    fill(element, note(run ? `Unknown: ${run.name} has not recorded the times of its ranks.` : 'No run is selected.'));
    return;
  }
  const most = Math.max(0, ...times.filter(Number.isFinite)), wait = numbersOf(ranks.rank_wait_ms), data = numbersOf(ranks.rank_data_ms);
  const own = times.map((ms, i) => ms - (wait[i] ?? 0));
  const slowest = Math.max(0, own.indexOf(Math.max(...own.filter(Number.isFinite))));
  const rows = times.map((ms, i) => {
    const meter = make('meter');
    meter.max = most;
    meter.value = Number.isFinite(ms) ? ms : 0;
    meter.title = formatNumber(ms) + ' ms';
    return [String(i), textOf(listOf(ranks.hosts)[i] ?? 'unknown'), orUnknown(ms, ' ms'), meter, orUnknown(wait[i], ' ms'),
      orUnknown(data[i], ' ms'), orUnknown(wait[i] === undefined ? undefined : own[i], ' ms')];
  });
  const table = makeTable(['Rank', 'Host', 'Step', '', 'Waits for others', 'Waits for data', 'Own time'], rows);
  const text = times.length > 1 && wait.length
    ? `${run.name}, step ${textOf(ranks.step)}: rank ${slowest} takes the most time of its own, ${formatNumber(own[slowest])} ms of a step; the others wait for it.`
    : `${run.name}, step ${textOf(ranks.step)}.`;
  const scroll = make('div', undefined, 'scroll');
  scroll.append(table);
  fill(element, make('p', text), scroll);
}

// Hosts and GPUs

const hostCharts = new Map();
const HOST_CURVES = [
  ['CPU, mean of the cores, in percent', ['cpu'], formatNumber], ['Memory', ['memory_used', 'process_memory'], formatBytes],
  ['Network, bytes per second', ['received', 'sent'], formatBytes], ['Disk, bytes per second', ['disk_read', 'disk_written'], formatBytes],
  ['GPUs busy, in percent', 'busy', formatNumber], ['Memory of the GPUs', 'memory_used', formatBytes],
  ['Power of the GPUs, in watts', 'watts', formatNumber], ['Temperature of the GPUs, in °C', 'celsius', formatNumber]];

function sumOf(cards, what) {
  const values = Object.entries(objectOf(cards)).filter(([name]) => name !== 'lo').map(([, card]) => objectOf(card)[what])
    .filter(Number.isFinite);
  return values.length ? values.reduce((a, b) => a + b) : undefined;
}

function rate(bytes) {
  return bytes === undefined ? 'unknown' : formatBytes(bytes) + '/s';
}

function hostRow(host) {
  const now = host.latest || {};
  const cores = numbersOf(now.cpu);
  const cpu = cores.length ? cores.reduce((a, b) => a + b) / cores.length : undefined;
  const speeds = Object.entries(objectOf(now.net)).filter(([name, card]) => name !== 'lo' && objectOf(card).speed)
    .map(([name, card]) => `${name} ${textOf(card.speed)} Mbit/s`);
  return [host.name, cpu === undefined ? 'unknown' : `${Math.round(cpu)} % of ${cores.length} cores`,
    `${formatBytes(now.memory_used)} of ${formatBytes(now.memory_total)}`, formatBytes(now.process_memory),
    rate(sumOf(now.net, 'received')), rate(sumOf(now.net, 'sent')), speeds.join(', ') || 'unknown', formatBytes(now.disk_free),
    now.time ? new Date(now.time * 1000).toLocaleTimeString() : 'unknown'];
}

function gpuRows(host) {
  return listOf(host.latest?.gpu).map(objectOf).map(gpu => [host.name, `${textOf(gpu.index ?? '?')}: ${textOf(gpu.name ?? 'unknown')}`,
    Number.isFinite(gpu.busy) ? Math.round(gpu.busy) + ' %' : 'unknown',
    `${formatBytes(gpu.memory_used)} of ${formatBytes(gpu.memory_total)}`,
    `${orUnknown(gpu.watts, ' W')}${gpu.watts_limit ? ` of ${textOf(gpu.watts_limit)} W` : ''}`, orUnknown(gpu.celsius, ' °C'),
    orUnknown(gpu.sm_mhz, ' MHz'), Array.isArray(gpu.throttle) ? gpu.throttle.map(textOf).join(', ').replaceAll('_', ' ') || 'none' : 'unknown']);
}

export async function showHosts(element, run) {
  if (!run) return fill(element, note('No run is selected.'));
  const answer = await store.fetchJson('api/system', { run: run.id });
  const label = document.getElementById('host-label');
  label.hidden = answer.hosts.length === 0;
  if (!answer.hosts.length) {
    hostCharts.forEach(chart => chart.remove());
    hostCharts.clear();
    return fill(element, note(`Unknown: ${run.name} has no samples of its hosts (system.jsonl).`));
  }
  const hosts = makeTable(['Host', 'CPU', 'Memory', 'Memory of the ranks', 'Received', 'Sent', 'Network cards', 'Free disk', 'At'],
    answer.hosts.map(hostRow));
  const gpus = answer.hosts.flatMap(gpuRows);
  const scroll = make('div', undefined, 'scroll');
  scroll.append(hosts);
  if (gpus.length)
    scroll.append(makeTable(['Host', 'GPU', 'Busy', 'Memory', 'Power', 'Temperature', 'Clock', 'Throttled by'], gpus));
  fill(element, scroll, note(gpus.length ? '' : 'GPUs: none was measured on these hosts.'),
    note(answer.cut ? 'There are more hosts than the board shows.' : ''));
  fillSelect(document.getElementById('host'), answer.hosts.map((host, i) => [String(i), host.name]));
  await showHistory(run, answer.hosts);
}

// Sets the choices of a select element, and keeps the one that is selected.
export function fillSelect(select, choices, value = select.value) {
  const text = JSON.stringify(choices);
  if (select.dataset.choices !== text) {
    select.dataset.choices = text;
    select.replaceChildren(...choices.map(([key, name]) => new Option(name, key)));
  }
  if (choices.some(choice => choice[0] === value)) select.value = value;
}

async function showHistory(run, hosts) {
  const index = Number(document.getElementById('host').value) || 0;
  const parent = document.getElementById('host-charts');
  const columns = hosts[index]?.columns || [];
  const wanted = HOST_CURVES.map(([title, fields, format]) => [title, Array.isArray(fields) ? fields
    : columns.filter(name => /^gpu\d+_/.test(name) && name.endsWith('_' + fields) && name.split('_').slice(1).join('_') === fields), format])
    .map(([title, fields, format]) => [title, fields.filter(name => columns.includes(name)), format]).filter(([, fields]) => fields.length);
  const names = wanted.flatMap(([, fields]) => fields);
  run.history ||= {};
  for (let i = 0; i < names.length; i += 16) await fetchHistory(run, index, names.slice(i, i + 16));
  for (const [title, chart] of hostCharts) {
    if (wanted.some(curve => curve[0] === title)) continue;
    chart.remove();
    hostCharts.delete(title);
  }
  const colours = ['#1f77d0', '#e0651b', '#2c9a4b', '#c63d8f', '#8a63d2', '#b8860b', '#0f9aa8', '#d0393b'];
  for (const [title, fields, format] of wanted) {
    if (!hostCharts.has(title))
      hostCharts.set(title, new Chart(parent, { title, axis: () => 'time', includesZero: true, format, hasKey: true, onZoom: () => {} }));
    hostCharts.get(title).show(fields.map((field, i) => {
      const series = run.history[index + '/' + names.slice(Math.floor(names.indexOf(field) / 16) * 16).slice(0, 16).join(',')];
      return { name: field.replaceAll('_', ' '), colour: colours[i % colours.length], x: series.step.map(s => s * 1000), column: series.columns[field] };
    }), {});
  }
}

async function fetchHistory(run, host, fields) {
  const key = host + '/' + fields.join(',');
  const known = run.history[key];
  const answer = await store.fetchCurves('api/host', {
    run: run.id, host, fields: fields.join(','), epoch: known?.epoch || '', have: known?.step.length || 0,
  });
  if (known && known.epoch === answer.epoch) store.appendBuckets(known, answer);
  else run.history[key] = answer;
}

// Samples

export async function showSamples(element, run) {
  if (!run) return fill(element, note('No run is selected.'));
  const { samples } = await store.fetchJson('api/samples', { run: run.id });
  const select = document.getElementById('sample-step');
  document.getElementById('sample-label').hidden = samples.length === 0;
  if (!samples.length)
    return fill(element, note(`Unknown: ${run.name} has no samples yet (samples.jsonl). A validation with BLEU writes some.`));
  const steps = samples.map(sample => String(sample.step)).reverse();
  const followsLast = !select.value || select.value === select.dataset.last;
  fillSelect(select, steps.map(step => [step, Number(step).toLocaleString('en')]), followsLast ? steps[0] : select.value);
  select.dataset.last = steps[0];
  const shown = samples.find(sample => String(sample.step) === select.value) || samples[samples.length - 1];
  const rows = listOf(shown.samples).map(objectOf);
  const heads = [...new Set(rows.flatMap(row => Object.keys(row)))];
  const table = makeTable(heads.map(name => name.slice(0, 1).toUpperCase() + name.slice(1)),
    rows.map(row => heads.map(name => textOf(row[name] ?? ''))), 'wide');
  table.querySelectorAll('td').forEach(cell => { cell.className = 'text'; });
  fill(element, table);
}

// Options

// What the last process of a run was, beside its options.
const PROCESS = ['command', 'version', 'ranks', 'device', 'transport', 'parameters', 'system'];

function optionsOf(run) {
  const process = PROCESS.filter(name => run.info.process?.[name] !== undefined);
  return new Map([...process.map(name => [`(${name})`, textOf(run.info.process[name])]), ...run.info.config]);
}

export function showOptions(element, selected) {
  const known = selected.filter(run => run.info).slice(0, 30);
  if (!known.length) return fill(element, note(selected.length ? 'Reading…' : 'No run is selected.'));
  const maps = known.map(optionsOf);
  const all = [...new Set(maps.flatMap(map => [...map.keys()]))].sort();
  const differs = name => new Set(maps.map(map => map.get(name))).size > 1;
  const shown = all.filter(name => !store.settings.differences || (differs(name) && name !== 'run'));
  const table = makeTable(['Option', ...known.map(run => run.name)],
    shown.map(name => [name, ...maps.map(map => map.get(name) ?? (name.startsWith('(') ? 'unknown' : 'default'))]));
  [...table.tBodies[0].rows].forEach((row, i) => { row.className = known.length > 1 && differs(shown[i]) ? 'differs' : ''; });
  const empty = known.length < 2 ? 'Select two runs or more to see what differs.' : 'These runs have the same options.';
  fill(element, shown.length ? table : note(all.length ? empty : 'Unknown: the run has no config.'));
}

// Events

function describeEvent(event) {
  if (event.event === 'restart')
    return `Restart ${textOf(event.restart_count ?? '')}: ${textOf(event.restart_reason || 'the reason is unknown')}`;
  if (event.event === 'rollback')
    return `Roll-back from step ${textOf(event.rolled_back_from ?? 'unknown')}; the learning rate is multiplied by ${orUnknown(event.lr_scale, '')}`;
  if (event.event === undefined)
    return `Resumed after step ${textOf(event.undone_after ?? 'unknown')}: later steps are trained again`;
  const rest = Object.entries(event).filter(([key]) => !['event', 'step', 'seconds', 'undone_after'].includes(key));
  return `${textOf(event.event)}${rest.length ? ': ' : ''}${rest.map(([key, value]) => `${key.replaceAll('_', ' ')} ${JSON.stringify(value)}`).join(', ')}`;
}

function eventsOf(run) {
  const events = (run.info?.events || []).map(event => ({ run, step: Number(event.step), when: formatSeconds(Number(event.seconds) || 0) + ' of training', text: describeEvent(event) }));
  const checkpoints = (run.info?.checkpoints || []).map(c => ({
    run, step: c.step, when: new Date(c.time * 1000).toLocaleString(), text: c.is_best ? 'Checkpoint, the best so far' : 'Checkpoint',
  }));
  return [...events, ...checkpoints];
}

export function showEvents(element, selected) {
  const events = selected.flatMap(eventsOf).sort((a, b) => b.step - a.step).slice(0, 1000);
  if (!events.length) return fill(element, note(selected.length ? 'No checkpoints, restarts, resumes or roll-backs.' : 'No run is selected.'));
  fill(element, makeTable(['Step', 'Run', 'When', 'What'],
    events.map(event => [event.step.toLocaleString('en'), event.run.name, event.when, event.text])));
}
