// One chart: lines of several runs over a common axis, drawn by dygraphs. Data of any length is
// reduced to about one point for each pixel, with the smallest and largest value.

export const names = {
  nll: 'Training loss (NLL)', loss: 'Training objective, with label smoothing',
  valid_nll: 'Validation loss (NLL)', valid_bleu: 'Validation BLEU', perplexity: 'Training perplexity',
  valid_perplexity: 'Validation perplexity', lr: 'Learning rate', grad_norm: 'Gradient norm',
  target_tokens_per_s: 'Target tokens per second', steps_per_s: 'Steps per second', pairs_per_s: 'Pairs per second',
  tflops_per_s: 'TFLOP/s of all ranks', mfu: 'Share of the peak FLOP/s (MFU)', accuracy: 'Training accuracy', loss_scale: 'Loss scale',
  skipped: 'Skipped updates', epoch: 'Epoch', valid_seconds: 'Seconds of a validation',
  valid_accuracy: 'Validation accuracy', valid_f1_macro: 'Validation macro-F1', valid_f1_micro: 'Validation micro-F1',
  valid_auc: 'Validation AUC', valid_average_precision: 'Validation average precision', valid_mcc: 'Validation MCC',
  valid_ece: 'Validation calibration error (ECE)', valid_mae: 'Validation mean absolute error', valid_pearson: 'Validation correlation',
  tokens_per_s: 'Tokens per second', texts_per_s: 'Texts per second', labels_per_s: 'Labels per second',
  average_nll: 'Loss of averaged checkpoints', average_bleu: 'BLEU of averaged checkpoints',
};

export function nameOf(field) {
  return Object.hasOwn(names, field) ? names[field] : field.replaceAll('_', ' ');
}

export function kindOf(field) {
  return field.startsWith('valid_') ? 'valid' : field.startsWith('average_') ? 'average' : 'train';
}

export function formatNumber(value) {
  if (!Number.isFinite(value)) return 'unknown';
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return Number(value.toPrecision(3)).toExponential().replace('e+', 'e');
  for (const [unit, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e4, 'k']])
    if (size >= unit) return Number((value / (name === 'k' ? 1e3 : unit)).toPrecision(4)) + ' ' + name;
  return String(Number(value.toPrecision(4)));
}

export function formatSeconds(seconds) {
  const whole = Math.round(seconds);
  const [d, h, m, s] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${String(m).padStart(2, '0')} min`;
  if (m) return `${m} min ${String(s).padStart(2, '0')} s`;
  return seconds < 10 && seconds !== whole ? seconds.toFixed(1) + ' s' : s + ' s';
}

// The time of day; with seconds if the chart shows minutes only.
function formatClock(x, span) {
  const seconds = span < 10 * 60000 ? { second: '2-digit' } : {};
  return new Date(x).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false, ...seconds });
}

export function formatPlace(axis, x) {
  if (axis === 'seconds') return formatSeconds(x);
  if (axis === 'time') return new Date(x).toLocaleString();
  return (axis === 'tokens' ? formatNumber(x) : Math.round(x).toLocaleString('en')) + (axis === 'tokens' ? ' tokens' : '');
}

// Exponential moving average, without the bias of its beginning.
function smoothValues(values, weight) {
  if (!weight) return values;
  let sum = 0, total = 0;
  return values.map(v => {
    if (v === null) return null;
    sum = sum * weight + (1 - weight) * v;
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

// Adds the points of one line to bins: bin number -> {x, low, mean, high} of each line.
function fillBins(bins, line, number, options) {
  const { x, column } = line;
  const [from, to, count] = options.range;
  const width = (to - from) / count || 1;
  const smooth = smoothValues(column.mean, options.smooth);
  for (let i = 0; i < x.length; i++) {
    if (x[i] === null || column.mean[i] === null) continue;
    if (x[i] < from - width * 2 || x[i] > to + width * 2) continue;
    const key = options.isExact ? x[i] : Math.floor((x[i] - from) / width);
    let bin = bins.get(key);
    if (!bin) bins.set(key, bin = { x: x[i], cells: [] });
    bin.x = Math.max(bin.x, x[i]);
    const low = Math.min(column.min ? column.min[i] : column.mean[i], smooth[i]);
    const high = Math.max(column.max ? column.max[i] : column.mean[i], smooth[i]);
    const old = bin.cells[number];
    bin.cells[number] = old ? [Math.min(old[0], low), smooth[i], Math.max(old[2], high)] : [low, smooth[i], high];
  }
}

// The legend of dygraphs needs inline styles, which the page's security policy forbids. The board
// shows values itself, see showHover.
const removeLegend = () => {
  Dygraph.PLUGINS = Dygraph.PLUGINS.filter(plugin => plugin !== Dygraph.Plugins.Legend);
};

const BANDED = 12; // with more lines, shades would hide each other

// Makes rows for dygraphs: [x, [low, mean, high], …], or [x, mean, …] without bands.
function makeRows(lines, options) {
  const places = new Set();
  for (const line of lines) for (const x of line.x) if (x !== null) places.add(x);
  let first = Infinity, last = -Infinity;
  for (const x of places) {
    if (x < first) first = x;
    if (x > last) last = x;
  }
  const [from, to] = options.window || [first, last];
  const isExact = places.size <= options.width * 2;
  const bins = new Map();
  lines.forEach((line, number) =>
    fillBins(bins, line, number, { range: [from, to, options.width], smooth: options.smooth, isExact }));
  const rows = [...bins.values()].sort((a, b) => a.x - b.x);
  return rows.map(bin => [bin.x, ...lines.map((_, i) => makeCell(bin.cells[i], options))]);
}

function makeCell(cell, { log, hasBands }) {
  if (!cell || (log && cell[1] <= 0)) return null;
  if (!hasBands) return cell[1];
  return log && cell[0] <= 0 ? [cell[1], cell[1], cell[2]] : cell;
}

// Draws the line of one run. Strokes are short: a browser without a GPU needs seconds for one of a
// thousand points that go up and down.
function plotLine(e) {
  const context = e.drawingContext;
  context.save();
  context.strokeStyle = context.fillStyle = e.color;
  context.lineWidth = e.strokeWidth;
  context.lineJoin = 'bevel';
  let last = null, count = 0;
  context.beginPath();
  for (const point of e.points) {
    if (point.yval === null || !isFinite(point.canvasy)) continue;
    if (last && count % 48 === 0) {
      context.stroke();
      context.beginPath();
      context.moveTo(last.canvasx, last.canvasy);
    }
    if (last) context.lineTo(point.canvasx, point.canvasy);
    else context.moveTo(point.canvasx, point.canvasy);
    last = point;
    count++;
  }
  context.stroke();
  if (count === 1) context.fillRect(last.canvasx - 2, last.canvasy - 2, 4, 4);
  context.restore();
}

// Draws the range of values behind a line, as one bar for each point.
function plotBand(e) {
  const { drawingContext: context, plotArea: area, points } = e;
  context.save();
  context.fillStyle = e.color;
  context.globalAlpha = 0.22;
  for (let i = 0; i < points.length; i++) {
    const { canvasx: x, y_top: top, y_bottom: bottom } = points[i];
    const height = (bottom - top) * area.h;
    if (!(height > 0.5)) continue;
    const next = i + 1 < points.length ? points[i + 1].canvasx : x + 1;
    context.fillRect(x, area.y + top * area.h, Math.min(8, Math.max(1, next - x)), height);
  }
  context.restore();
}

function readStyle(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class Chart {
  // options: title; axis(): name of the axis; onZoom(window or null); onClose; isStacked; before: the card that
  // comes after this one, without which it is the last.
  constructor(parent, options) {
    this.options = options;
    this.lines = [];
    this.window = null;
    this.card = document.createElement('div');
    this.card.className = 'card';
    const title = document.createElement('h3');
    title.append(options.title);
    if (options.onClose) {
      const close = document.createElement('button');
      close.type = 'button';
      close.textContent = '×';
      close.setAttribute('aria-label', 'Remove the chart ' + options.title);
      close.addEventListener('click', options.onClose);
      title.append(close);
    }
    this.plot = document.createElement('div');
    this.plot.className = 'plot';
    this.plot.tabIndex = 0;
    this.plot.setAttribute('role', 'img');
    this.plot.addEventListener('keydown', event => this.handleKey(event));
    this.hover = document.createElement('div');
    this.hover.className = 'hover';
    this.hover.hidden = true;
    this.unknown = document.createElement('div');
    this.unknown.className = 'unknown';
    this.key = document.createElement('div');
    this.key.className = 'key';
    this.card.append(title, this.plot, this.key, this.hover, this.unknown);
    parent.insertBefore(this.card, options.before ?? null);
    this.isVisible = false;
    this.observer = new IntersectionObserver(entries => {
      this.isVisible = entries[entries.length - 1].isIntersecting;
      if (this.isVisible && this.isDirty) this.draw();
    }, { rootMargin: '200px' });
    this.observer.observe(this.card);
  }

  // lines: {name, colour, x, column: {mean, min, max}}; settings: {smooth, log, window, marks, why}.
  show(lines, settings) {
    this.lines = lines.filter(line => line.column && line.column.mean.some(v => v !== null));
    this.settings = settings;
    this.isDirty = true;
    if (this.isVisible) this.draw();
  }

  draw() {
    this.isDirty = false;
    const isEmpty = this.lines.length === 0;
    this.unknown.hidden = !isEmpty;
    this.unknown.textContent = this.settings.why || 'Unknown: no selected run has recorded it.';
    this.plot.style.visibility = isEmpty ? 'hidden' : 'visible';
    this.describe();
    if (isEmpty) return;
    const { smooth = 0, log = false, window: range = null } = this.settings;
    const hasBands = this.lines.length <= BANDED && !this.options.isStacked;
    const density = this.lines.length > 30 ? 0.5 : 1; // points for each pixel
    const width = Math.max(100, (this.plot.clientWidth - 60) * density);
    const rows = makeRows(this.lines, { smooth, log, window: range, width, hasBands });
    if (rows.length === 0) rows.push([range ? range[0] : 0, ...this.lines.map(() => null)]);
    const options = this.makeOptions(rows, { log, range, hasBands });
    const shape = this.lines.length + ':' + hasBands;
    if (this.graph && this.shape === shape) {
      this.graph.updateOptions(options);
    } else {
      if (this.graph) this.graph.destroy();
      removeLegend();
      this.graph = new Dygraph(this.plot, rows, options);
      this.shape = shape;
    }
  }

  makeOptions(rows, { log, range, hasBands }) {
    const axis = this.options.axis();
    const labels = [axis, ...this.lines.map((line, i) => i + ' ' + line.name)];
    const isTime = axis === 'time';
    return {
      file: rows, labels, colors: this.lines.map(line => line.colour), customBars: hasBands,
      stackedGraph: Boolean(this.options.isStacked), logscale: log, dateWindow: range,
      connectSeparatedPoints: true, legend: 'never', fillAlpha: this.options.isStacked ? 0.55 : 0.16, strokeWidth: 1.6,
      highlightCircleSize: 3, animatedZooms: false,
      plotter: this.options.isStacked ? [Dygraph.Plotters.fillPlotter, plotLine] : hasBands ? [plotBand, plotLine] : plotLine,
      gridLineColor: readStyle('--grid'), axisLineColor: readStyle('--line'), xRangePad: 4, yRangePad: 8,
      includeZero: Boolean(this.options.includesZero || this.options.isStacked), labelsKMB: false,
      axes: {
        x: {
          axisLabelFormatter: isTime ? x => formatClock(x, rows[rows.length - 1][0] - rows[0][0])
            : x => (axis === 'seconds' ? formatSeconds(x) : formatNumber(x)),
          pixelsPerLabel: 60, ticker: isTime ? Dygraph.dateTicker : Dygraph.numericTicks,
        },
        y: { axisLabelFormatter: y => (this.options.format || formatNumber)(y), axisLabelWidth: 54, pixelsPerLabel: 34 },
      },
      highlightCallback: (event, x, points) => this.showHover(x, points),
      unhighlightCallback: () => { this.hover.hidden = true; },
      zoomCallback: (from, to) => {
        const [first, last] = this.graph.xAxisExtremes();
        this.options.onZoom?.(from <= first && to >= last ? null : [from, to]);
      },
      underlayCallback: (canvas, area, graph) => this.drawMarks(canvas, area, graph),
    };
  }

  // Vertical lines at restarts, resumes and roll-backs.
  drawMarks(canvas, area, graph) {
    for (const mark of this.settings.marks || []) {
      const x = graph.toDomXCoord(mark.x);
      if (!(x >= area.x && x <= area.x + area.w)) continue;
      canvas.save();
      canvas.strokeStyle = mark.colour;
      canvas.globalAlpha = 0.6;
      canvas.setLineDash([4, 4]);
      canvas.beginPath();
      canvas.moveTo(x, area.y);
      canvas.lineTo(x, area.y + area.h);
      canvas.stroke();
      canvas.restore();
    }
  }

  // The values at the pointer: of the runs that have a point there, the first eight.
  showHover(x, points) {
    const place = document.createElement('div');
    place.textContent = formatPlace(this.options.axis(), x);
    const rows = points.slice(0, 8).map(point => {
      const line = this.lines[parseInt(point.name, 10)];
      const row = document.createElement('div');
      const name = document.createElement('span');
      name.className = 'name';
      name.textContent = line.name;
      const value = document.createElement('b');
      value.textContent = (this.options.format || formatNumber)(point.yval);
      row.append(makeSwatch(line.colour), name, value);
      return row;
    });
    if (points.length > 8) {
      const rest = document.createElement('div');
      rest.textContent = `and ${points.length - 8} more`;
      rows.push(rest);
    }
    this.hover.replaceChildren(place, ...rows);
    this.hover.hidden = false;
  }

  // The chart in words, for those who cannot see it, and a key to its colours.
  describe() {
    const format = this.options.format || formatNumber;
    const last = this.lines.slice(0, 5).map(line => {
      const values = line.column.mean.filter(v => v !== null);
      return `${line.name}: last ${format(values[values.length - 1])}`;
    });
    this.plot.setAttribute('aria-label', `${this.options.title}. ${last.join('; ') || 'No values.'}`);
    if (!this.options.hasKey) return;
    this.key.replaceChildren(...this.lines.map(line => {
      const item = document.createElement('span');
      item.append(makeSwatch(line.colour), line.name);
      return item;
    }));
  }

  handleKey(event) {
    if (!this.graph || event.ctrlKey || event.metaKey || event.altKey) return;
    const [from, to] = this.graph.xAxisRange();
    const [first, last] = this.graph.xAxisExtremes();
    const span = to - from, middle = (from + to) / 2;
    const ranges = {
      '+': [middle - span / 4, middle + span / 4], '=': [middle - span / 4, middle + span / 4],
      '-': [middle - span, middle + span], '−': [middle - span, middle + span],
      'ArrowLeft': [from - span / 4, to - span / 4], 'ArrowRight': [from + span / 4, to + span / 4],
    };
    const isReset = event.key === '0' || event.key === 'Escape';
    if (!isReset && !ranges[event.key]) return;
    event.preventDefault();
    let range = isReset ? null : ranges[event.key];
    if (range && event.key.startsWith('Arrow')) {
      const move = Math.min(0, last - range[1]) + Math.max(0, first - range[0]);
      range = [range[0] + move, range[1] + move];
    }
    if (range && range[0] <= first && range[1] >= last) range = null;
    if (range) range = [Math.max(first, range[0]), Math.min(last, range[1])];
    this.options.onZoom?.(range);
  }

  remove() {
    this.observer.disconnect();
    if (this.graph) this.graph.destroy();
    this.card.remove();
  }
}

export function makeSwatch(colour) {
  const swatch = document.createElement('span');
  swatch.className = 'swatch';
  swatch.style.background = colour;
  return swatch;
}
