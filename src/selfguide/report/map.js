"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const carried = JSON.parse(element("values").textContent);
  const { sentences, clusters } = carried;
  const count = sentences.length;
  const STEPS = 65535, CELLS = 96, COLOURS = 12, LISTED = 60, BEACONS = 200, LAND = 220, RIM = 0.05, LONGEST = 400;

  function unpacked(text, Kind) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Kind(bytes.buffer);
  }

  const labels = unpacked(carried.labels, Int16Array);
  const sides = carried.sides.map((side) => ({
    encoder: side.encoder, shown: side.shown,
    x: Float32Array.from(unpacked(side.x, Uint16Array), (value) => value / STEPS),
    y: Float32Array.from(unpacked(side.y, Uint16Array), (value) => value / STEPS),
    near: unpacked(side.near, Uint32Array), cosines: unpacked(side.cosines, Int8Array),
  }));
  // Points between the groups first, so that none of them covers a group's.
  const order = Uint32Array.from({ length: count }, (_, row) => row).sort((a, b) => labels[a] - labels[b]);

  const canvas = element("map"), context = canvas.getContext("2d"), tip = element("tip"), search = element("search");
  const ground = element("ground").getContext("2d"), dots = element("dots").getContext("2d");
  const state = {
    side: sides.length - 1, x: sides.at(-1).x.slice(), y: sides.at(-1).y.slice(), grid: null, land: null, moving: false,
    scale: 1, stretch: 1, left: 0, top: 0, fitted: true, hit: null, hovered: -1, picked: -1, group: -1,
  };
  let width = 0, height = 0, ratio = 1, colours = [], asked = false, image = null, pixels = null;

  // -- drawing -----------------------------------------------------------------------------------------------------------
  // Three canvases: the ground in the colours of the groups, the points, and names and marks. The points are written pixel by
  // pixel, which takes a few milliseconds for 50,000 of them, where as many calls of fillRect take longer than a frame.

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(name).trim();
    colours = { groups: Array.from({ length: COLOURS }, (_, number) => named(`--c${number}`)) };
    for (const name of ["apart", "paper", "ink", "accent"]) colours[name] = named(`--${name}`);
    colours.bytes = colours.groups.map(bytes);
  }

  function bytes(colour) {
    const value = parseInt(colour.slice(1), 16);
    return [value >> 16, (value >> 8) & 255, value & 255];
  }

  function draw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; paint(); });
  }

  const across = (row) => state.x[row] * state.scale * state.stretch + state.left;
  const down = (row) => state.y[row] * state.scale + state.top;

  function paint() {
    if (!width || !height) return;
    const zoom = state.scale / Math.min(width, height);
    const room = Math.sqrt(Math.min(width, height) / 800);
    const size = Math.max(1.5, Math.min(7, (190 / Math.sqrt(count)) * Math.sqrt(zoom) * room + 0.7));
    const faded = state.hit !== null || state.group >= 0;
    paintGround(faded);
    new Uint32Array(pixels.buffer).fill(0);
    let label = null, colour = null, alpha = 0;
    for (const row of order) {
      if (labels[row] !== label) {
        label = labels[row];
        colour = label < 0 ? bytes(colours.apart) : colours.bytes[clusters[label].colour];
        alpha = faded && (state.hit !== null || label !== state.group) ? 40 : label < 0 ? 150 : 225;
      }
      stamp(row, label < 0 ? 0.8 * size : size, colour, alpha);
    }
    if (state.hit !== null) for (const row of state.hit) stamp(row, Math.max(1.3 * size, 4), bytes(colours.accent), 255);
    dots.putImageData(image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const few = state.hit !== null && state.hit.length <= BEACONS;
    if ((state.hit === null || few) && !state.moving) nameGroups(zoom, few ? 0.45 : 1);
    if (few) state.hit.forEach(beacon);
    if (state.picked >= 0) mark(state.picked, 9);
    if (state.hovered >= 0) mark(state.hovered, 7);
  }

  // Coverage of the pixels around a disc, by its size and by where in a pixel its middle lies, in quarters.
  const masks = new Map();
  function maskOf(size, right, under) {
    const key = Math.round(size * 4) * 16 + right * 4 + under;
    let found = masks.get(key);
    if (!found) {
      const reach = Math.ceil(size / 2 + 0.5), side = 2 * reach + 1;
      found = { reach, side, cover: new Float32Array(side * side) };
      for (let i = 0; i < side * side; i++) {
        const away = Math.hypot((i % side) - reach - right / 4, Math.floor(i / side) - reach - under / 4);
        found.cover[i] = Math.max(0, Math.min(1, size / 2 - away + 0.5));
      }
      masks.set(key, found);
    }
    return found;
  }

  function stamp(row, size, [red, green, blue], alpha) {
    const x = across(row) * ratio, y = down(row) * ratio;
    const { reach, side, cover } = maskOf(size * ratio, (x - Math.floor(x)) * 4 | 0, (y - Math.floor(y)) * 4 | 0);
    const left = Math.floor(x) - reach, top = Math.floor(y) - reach, columns = image.width;
    if (left < 0 || top < 0 || left + side > columns || top + side > image.height) return;
    for (let j = 0, i = 0; j < side; j++) {
      let at = 4 * ((top + j) * columns + left);
      for (let k = 0; k < side; k++, i++, at += 4) {
        const value = cover[i] * alpha;
        // Where discs overlap, the later one is on top; at its rim whatever covers the pixel more.
        if (value < 8 || value + 60 < pixels[at + 3]) continue;
        pixels[at] = red; pixels[at + 1] = green; pixels[at + 2] = blue;
        if (value > pixels[at + 3]) pixels[at + 3] = value;
      }
    }
  }

  // How dense each group is around each place, as a small picture that is enlarged.
  function landOf() {
    const sums = new Float32Array(LAND * LAND * 4), reach = 4;
    const bell = Array.from({ length: reach + 1 }, (_, away) => Math.exp(-(away * away) / 5));
    for (let row = 0; row < count; row++) {
      if (labels[row] < 0) continue;
      const [red, green, blue] = colours.bytes[clusters[labels[row]].colour];
      const column = Math.floor((state.x[row] + RIM) * LAND / (1 + 2 * RIM)), line = Math.floor((state.y[row] + RIM) * LAND / (1 + 2 * RIM));
      for (let j = Math.max(0, line - reach); j <= Math.min(LAND - 1, line + reach); j++) {
        for (let i = Math.max(0, column - reach); i <= Math.min(LAND - 1, column + reach); i++) {
          const weight = bell[Math.abs(i - column)] * bell[Math.abs(j - line)], at = 4 * (i + LAND * j);
          sums[at] += weight * red; sums[at + 1] += weight * green; sums[at + 2] += weight * blue; sums[at + 3] += weight;
        }
      }
    }
    const usual = sums.filter((_, at) => at % 4 === 3).filter((value) => value > 0.05).sort();
    const full = usual[Math.floor(usual.length * 0.7)] || 1, land = new ImageData(LAND, LAND);
    for (let at = 0; at < sums.length; at += 4) {
      const weight = sums[at + 3];
      if (weight) for (let part = 0; part < 3; part++) land.data[at + part] = sums[at + part] / weight;
      land.data[at + 3] = 70 * Math.sqrt(Math.min(1, weight / full));
    }
    const drawn = Object.assign(document.createElement("canvas"), { width: LAND, height: LAND });
    drawn.getContext("2d").putImageData(land, 0, 0);
    return drawn;
  }

  function paintGround(faded) {
    ground.setTransform(ratio, 0, 0, ratio, 0, 0);
    ground.clearRect(0, 0, width, height);
    if (state.moving || !clusters.length) return;
    state.land ??= landOf();
    ground.globalAlpha = faded ? 0.4 : 1;
    ground.imageSmoothingQuality = "high";
    const wide = state.scale * state.stretch, whole = 1 + 2 * RIM;
    ground.drawImage(state.land, state.left - RIM * wide, state.top - RIM * state.scale, whole * wide, whole * state.scale);
  }

  function mark(row, size) {
    context.lineWidth = 4;
    context.strokeStyle = colours.paper;
    for (let turn = 0; turn < 2; turn++) {
      context.beginPath();
      context.arc(across(row), down(row), size, 0, 6.3);
      context.stroke();
      context.lineWidth = 2;
      context.strokeStyle = colours.ink;
    }
  }

  // A few hits are drawn larger than any point, with a rim, to be seen at a glance in a large map.
  function beacon(row) {
    context.beginPath();
    context.arc(across(row), down(row), 5, 0, 6.3);
    context.lineWidth = 3;
    context.strokeStyle = colours.paper;
    context.stroke();
    context.fillStyle = colours.ink;
    context.fill();
  }

  function nameGroups(zoom, alpha) {
    context.globalAlpha = alpha;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    const taken = [], most = Math.sqrt(clusters[0]?.size ?? 1);
    clusters.forEach((cluster, number) => {
      const text = cluster.words.slice(0, zoom > 2.5 ? 3 : 2).join(" · ");
      if (!text || (state.group >= 0 && state.group !== number)) return;
      const size = Math.round((width < 500 ? 10 : 12) + 6 * (Math.sqrt(cluster.size) / most));
      context.font = `700 ${size}px system-ui, sans-serif`;
      const [x, y] = toScreen(middles[number]), half = context.measureText(text).width / 2 + 5, tall = size * 0.7;
      if (x < -half / 2 || x > width + half / 2 || y < 10 || y > height - 10) return;
      const middle = Math.max(half, Math.min(width - half, x));
      if (taken.some(([a, b, c, d]) => Math.abs(a - middle) < half + c && Math.abs(b - y) < tall + d)) return;
      taken.push([middle, y, half, tall]);
      context.lineWidth = 5;
      context.strokeStyle = colours.paper;
      context.strokeText(text, middle, y);
      context.fillStyle = colours.ink;
      context.fillText(text, middle, y);
    });
    context.globalAlpha = 1;
  }

  const toScreen = ([x, y]) => [x * state.scale * state.stretch + state.left, y * state.scale + state.top];

  // -- places ------------------------------------------------------------------------------------------------------------

  let middles = [];
  function settle() {
    const members = clusters.map(() => []);
    state.grid = Array.from({ length: CELLS * CELLS }, () => []);
    for (let row = 0; row < count; row++) {
      if (labels[row] >= 0) members[labels[row]].push(row);
      state.grid[cell(state.x[row]) + CELLS * cell(state.y[row])].push(row);
    }
    const median = (rows, values) => rows.map((row) => values[row]).sort((a, b) => a - b)[rows.length >> 1] ?? 0.5;
    state.land = null;
    middles = members.map((rows) => [median(rows, state.x), median(rows, state.y)]);
  }

  const cell = (place) => Math.max(0, Math.min(CELLS - 1, Math.floor(place * CELLS)));

  function nearest(x, y, reach) {
    const wide = state.scale * state.stretch, px = (x - state.left) / wide, py = (y - state.top) / state.scale;
    const r = reach / Math.min(state.scale, wide);
    let best = -1, least = reach * reach;
    for (let i = cell(px - r); i <= cell(px + r); i++) {
      for (let j = cell(py - r); j <= cell(py + r); j++) {
        for (const row of state.grid[i + CELLS * j]) {
          const distance = (across(row) - x) ** 2 + (down(row) - y) ** 2;
          if (distance < least) [best, least] = [row, distance];
        }
      }
    }
    return best;
  }

  function fit() {
    // UMAP's plane has no scale of its own: it is stretched a little towards the shape of the window.
    state.stretch = Math.max(0.75, Math.min(1.35, width / Math.max(height, 1)));
    state.scale = 0.95 * Math.min(width / state.stretch, height);
    state.left = (width - state.scale * state.stretch) / 2;
    state.top = (height - state.scale) / 2;
    state.fitted = true;
    draw();
  }

  function zoomBy(factor, x = width / 2, y = height / 2) {
    const least = 0.5 * Math.min(width, height), scale = Math.max(least, Math.min(least * 400, state.scale * factor));
    state.left = x - ((x - state.left) * scale) / state.scale;
    state.top = y - ((y - state.top) * scale) / state.scale;
    state.scale = scale;
    state.fitted = false;
    draw();
  }

  function show(rows) {
    const spread = (values) => [Math.min(...rows.map((row) => values[row])), Math.max(...rows.map((row) => values[row]))];
    const [[x0, x1], [y0, y1]] = [spread(state.x), spread(state.y)];
    const wanted = 0.7 * Math.min(width / Math.max(x1 - x0, 0.04) / state.stretch, height / Math.max(y1 - y0, 0.04));
    state.scale = Math.min(wanted, 12 * Math.min(width, height));
    state.left = width / 2 - ((x0 + x1) / 2) * state.scale * state.stretch;
    state.top = height / 2 - ((y0 + y1) / 2) * state.scale;
    state.fitted = false;
    draw();
  }

  function turnTo(side) {
    const from = { x: state.x.slice(), y: state.y.slice() }, to = sides[side];
    state.side = side;
    state.hovered = -1;
    tip.hidden = true;
    if (state.picked >= 0) pick(state.picked, false);
    const lasts = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 700;
    const began = performance.now();
    const step = (now) => {
      const share = lasts ? Math.min(1, Math.max(0, (now - began) / lasts)) : 1;
      const eased = share * share * (3 - 2 * share);
      for (let row = 0; row < count; row++) {
        state.x[row] = from.x[row] + (to.x[row] - from.x[row]) * eased;
        state.y[row] = from.y[row] + (to.y[row] - from.y[row]) * eased;
      }
      if (state.side !== side) return;
      state.moving = share < 1;
      if (share === 1) settle();
      paint();
      if (share < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  // -- the side column ---------------------------------------------------------------------------------------------------

  function button(row, cosine) {
    const item = document.createElement("li"), press = document.createElement("button");
    press.type = "button";
    if (cosine !== undefined) {
      const number = document.createElement("span");
      number.className = "cosine";
      number.textContent = (cosine / 100).toFixed(2).replace("-", "−");
      press.append(number);
    }
    const words = document.createElement("span");
    words.lang = "";
    words.dir = "auto";
    words.textContent = sentences[row];
    press.append(words);
    press.addEventListener("click", () => pick(row, true));
    press.addEventListener("pointerenter", () => { state.hovered = row; draw(); });
    press.addEventListener("pointerleave", () => { state.hovered = -1; draw(); });
    item.append(press);
    return item;
  }

  function pick(row, move) {
    state.picked = row;
    element("picked").hidden = row < 0;
    if (row >= 0) {
      element("sentence").textContent = sentences[row];
      const inTurn = [sides[state.side], ...sides.filter((_, number) => number !== state.side)];
      element("neighbours").replaceChildren(...inTurn.flatMap((side) => {
        const list = document.createElement("ol");
        for (let place = row * side.shown; place < (row + 1) * side.shown; place++) list.append(button(side.near[place], side.cosines[place]));
        const heading = document.createElement("h3");
        heading.textContent = side.encoder;
        return sides.length > 1 ? [heading, list] : [list];
      }));
      if (move) {
        const [x, y] = toScreen([state.x[row], state.y[row]]);
        if (x < 20 || y < 20 || x > width - 20 || y > height - 20) {
          state.left += width / 2 - x;
          state.top += height / 2 - y;
        }
      }
    }
    draw();
  }

  // One group alone, and its sentences below its row of the table; those in its middle first.
  function choose(group) {
    state.group = group;
    element("members")?.remove();
    document.querySelectorAll("[data-group]").forEach((press) => press.setAttribute("aria-pressed", Number(press.dataset.group) === group));
    if (group < 0) return fit();
    const [x, y] = middles[group], away = (row) => (state.x[row] - x) ** 2 + (state.y[row] - y) ** 2;
    const rows = [...order].filter((row) => labels[row] === group).sort((one, other) => away(one) - away(other));
    const line = document.createElement("tr"), cell = document.createElement("td"), list = document.createElement("ul");
    line.id = "members";
    cell.colSpan = 2;
    list.append(...rows.slice(0, LISTED).map((row) => button(row)));
    cell.append(list);
    if (rows.length > LISTED) {
      const more = document.createElement("p");
      more.className = "aside";
      more.textContent = `The ${LISTED} in the middle of ${rows.length.toLocaleString("en")}.`;
      cell.append(more);
    }
    line.append(cell);
    document.querySelector(`[data-group="${group}"]`).closest("tr").after(line);
    show(rows);
  }

  // Without case and accents: "Cafe" finds "café".
  const plain = (text) => text.normalize("NFD").replace(/\p{Mn}/gu, "").toLowerCase();
  let searchable = null;
  function find() {
    searchable ??= sentences.map(plain);
    const words = plain(search.value).split(/\s+/).filter(Boolean);
    state.hit = null;
    if (words.length) {
      state.hit = [];
      for (let row = 0; row < count; row++) if (words.every((word) => searchable[row].includes(word))) state.hit.push(row);
    }
    const hits = state.hit ?? [];
    element("results").hidden = !words.length;
    element("list").replaceChildren(...hits.slice(0, LISTED).map((row) => button(row)));
    const more = hits.length > LISTED ? `; the first ${LISTED} are listed` : "";
    element("found").textContent = words.length ? `${hits.length.toLocaleString("en")} of ${count.toLocaleString("en")} sentences${more}` : "";
    draw();
  }

  // The page of a server that shows this one in a frame sends the sentences that its own search found.
  let rowOf = null;
  addEventListener("message", (event) => {
    if (event.source !== parent || parent === window) return;
    rowOf ??= new Map(sentences.map((sentence, row) => [sentence, row]));
    const carriedForm = (text) => (text.length <= LONGEST ? text : text.slice(0, LONGEST - 1).trimEnd() + "…");
    const rowsOf = (texts) => texts.map((text) => rowOf.get(carriedForm(text))).filter((row) => row !== undefined);
    if (typeof event.data?.pick === "string") return rowsOf([event.data.pick]).forEach((row) => pick(row, true));
    if (!Array.isArray(event.data?.found)) return;
    const rows = rowsOf(event.data.found);
    parent.postMessage({ marked: rows.length }, "*");  // of a sample, or of a map of another text, some may be missing
    search.value = "";
    find();
    if (event.data.found.length) state.hit = rows;
    draw();
  });

  // -- what the reader does ----------------------------------------------------------------------------------------------

  const pointers = new Map();
  let moved = 0, apart = 0;
  const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event));
    moved = pointers.size > 1 ? Infinity : 0;
    apart = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event), before = pointers.get(event.pointerId);
    if (!before) return hover(x, y);
    moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    state.left += (x - before[0]) / pointers.size;
    state.top += (y - before[1]) / pointers.size;
    state.fitted = false;
    pointers.set(event.pointerId, [x, y]);
    if (pointers.size === 2) {
      const [one, other] = [...pointers.values()], now = Math.hypot(one[0] - other[0], one[1] - other[1]);
      if (apart) zoomBy(now / apart, (one[0] + other[0]) / 2, (one[1] + other[1]) / 2);
      apart = now;
    }
    draw();
  });
  const lifted = (event) => {
    const [x, y] = at(event);
    if (pointers.delete(event.pointerId) && moved < 6 && event.type === "pointerup") {
      const row = nearest(x, y, 14);
      if (row < 0 && state.group >= 0) choose(-1);
      pick(row, false);
    }
    apart = 0;
  };
  canvas.addEventListener("pointerup", lifted);
  canvas.addEventListener("pointercancel", lifted);
  canvas.addEventListener("pointerleave", () => hover(-99, -99));
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoomBy(Math.exp(-event.deltaY * 0.0016), ...at(event)); }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const pan = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (pan) { state.left += pan[0]; state.top += pan[1]; state.fitted = false; draw(); }
    else if (event.key === "+" || event.key === "=") zoomBy(1.4);
    else if (event.key === "-") zoomBy(1 / 1.4);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });

  function hover(x, y) {
    const row = nearest(x, y, 14);
    if (row !== state.hovered) {
      state.hovered = row;
      draw();
    }
    tip.hidden = row < 0;
    if (row < 0) return;
    tip.textContent = sentences[row];
    const [px, py] = toScreen([state.x[row], state.y[row]]);
    tip.style.left = `${Math.max(4, Math.min(px + 14, width - tip.offsetWidth - 8))}px`;
    tip.style.top = `${py + 14 + tip.offsetHeight > height ? Math.max(4, py - tip.offsetHeight - 14) : py + 14}px`;
  }

  element("in").addEventListener("click", () => zoomBy(1.6));
  element("out").addEventListener("click", () => zoomBy(1 / 1.6));
  element("all").addEventListener("click", () => choose(-1));
  element("close").addEventListener("click", () => pick(-1, false));
  search.addEventListener("input", find);
  document.querySelectorAll("input[name=side]").forEach((choice) => choice.addEventListener("change", () => turnTo(Number(choice.value))));
  document.querySelectorAll("[data-group]").forEach((press) => press.addEventListener("click", () => {
    const group = Number(press.dataset.group);
    choose(state.group === group ? -1 : group);
  }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); state.land = null; draw(); });

  new ResizeObserver(() => {
    const box = canvas.getBoundingClientRect();
    ratio = Math.min(devicePixelRatio || 1, 2);
    [width, height] = [box.width, box.height];
    for (const one of [canvas, ground.canvas, dots.canvas]) [one.width, one.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (!canvas.width || !canvas.height) return;
    image = dots.createImageData(canvas.width, canvas.height);
    pixels = image.data;
    if (state.fitted) fit();
    paint();
  }).observe(canvas);
  readColours();
  settle();
  find();
})();
