"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const carried = JSON.parse(element("values").textContent);
  const { sentences, clusters } = carried;
  const count = sentences.length;
  const STEPS = 65535, CELLS = 96, COLOURS = 12, LISTED = 60;

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
  // Points are drawn group by group, so that the colour changes a few times and not for every point.
  const order = Uint32Array.from({ length: count }, (_, row) => row).sort((a, b) => labels[a] - labels[b]);

  const canvas = element("map"), context = canvas.getContext("2d"), tip = element("tip"), search = element("search");
  const state = {
    side: sides.length - 1, x: sides.at(-1).x.slice(), y: sides.at(-1).y.slice(), grid: null,
    scale: 1, left: 0, top: 0, fitted: true, hit: null, hovered: -1, picked: -1, group: -1,
  };
  let width = 0, height = 0, colours = [], asked = false;

  // -- drawing -----------------------------------------------------------------------------------------------------------

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(name).trim();
    colours = { groups: Array.from({ length: COLOURS }, (_, number) => named(`--c${number}`)) };
    for (const name of ["apart", "paper", "ink", "accent"]) colours[name] = named(`--${name}`);
  }

  function draw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; paint(); });
  }

  function paint() {
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const zoom = state.scale / Math.min(width, height);
    const size = Math.max(1.4, Math.min(5, (110 / Math.sqrt(count)) * Math.sqrt(zoom) + 1));
    const faded = state.hit !== null || state.group >= 0;
    let label = null;
    for (const row of order) {
      if (labels[row] !== label) {
        label = labels[row];
        context.fillStyle = label < 0 ? colours.apart : colours.groups[label % COLOURS];
        context.globalAlpha = faded && (state.hit !== null || label !== state.group) ? 0.14 : label < 0 ? 0.55 : 0.85;
      }
      dot(row, size, size > 2.6 && count < 12000);
    }
    context.globalAlpha = 1;
    if (state.hit !== null) {
      context.fillStyle = colours.accent;
      for (const row of state.hit) dot(row, Math.max(size + 1, 3.5), true);
    }
    if (state.picked >= 0) mark(state.picked, 9);
    if (state.hovered >= 0) mark(state.hovered, 7);
    if (state.hit === null) nameGroups(zoom);
  }

  function dot(row, size, round) {
    const x = state.x[row] * state.scale + state.left, y = state.y[row] * state.scale + state.top;
    if (x < -size || y < -size || x > width + size || y > height + size) return;
    if (!round) return context.fillRect(x - size / 2, y - size / 2, size, size);
    context.beginPath();
    context.arc(x, y, size / 2 + 0.3, 0, 6.3);
    context.fill();
  }

  function mark(row, size) {
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(state.x[row] * state.scale + state.left, state.y[row] * state.scale + state.top, size, 0, 6.3);
    context.stroke();
  }

  function nameGroups(zoom) {
    context.font = "600 13px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    const taken = [];
    clusters.forEach((cluster, number) => {
      const text = cluster.words.slice(0, zoom > 2.5 ? 3 : 2).join(", ");
      if (!text || (state.group >= 0 && state.group !== number)) return;
      const [x, y] = toScreen(middles[number]);
      const half = context.measureText(text).width / 2 + 4;
      if (x < half || x > width - half || y < 10 || y > height - 10) return;
      if (taken.some(([a, b, c]) => Math.abs(a - x) < half + c && Math.abs(b - y) < 19)) return;
      taken.push([x, y, half]);
      context.lineWidth = 4;
      context.strokeStyle = colours.paper;
      context.strokeText(text, x, y);
      context.fillStyle = colours.ink;
      context.fillText(text, x, y);
    });
  }

  const toScreen = ([x, y]) => [x * state.scale + state.left, y * state.scale + state.top];

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
    middles = members.map((rows) => [median(rows, state.x), median(rows, state.y)]);
  }

  const cell = (place) => Math.max(0, Math.min(CELLS - 1, Math.floor(place * CELLS)));

  function nearest(x, y, reach) {
    const px = (x - state.left) / state.scale, py = (y - state.top) / state.scale, r = reach / state.scale;
    let best = -1, least = r * r;
    for (let i = cell(px - r); i <= cell(px + r); i++) {
      for (let j = cell(py - r); j <= cell(py + r); j++) {
        for (const row of state.grid[i + CELLS * j]) {
          const distance = (state.x[row] - px) ** 2 + (state.y[row] - py) ** 2;
          if (distance < least) [best, least] = [row, distance];
        }
      }
    }
    return best;
  }

  function fit() {
    state.scale = 0.94 * Math.min(width, height);
    state.left = (width - state.scale) / 2;
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
    const wanted = 0.7 * Math.min(width / Math.max(x1 - x0, 0.04), height / Math.max(y1 - y0, 0.04));
    state.scale = Math.min(wanted, 12 * Math.min(width, height));
    state.left = width / 2 - ((x0 + x1) / 2) * state.scale;
    state.top = height / 2 - ((y0 + y1) / 2) * state.scale;
    state.fitted = false;
    draw();
  }

  function turnTo(side) {
    const from = { x: state.x.slice(), y: state.y.slice() }, to = sides[side];
    state.side = side;
    state.hovered = -1;
    tip.hidden = true;
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
    item.append(press);
    return item;
  }

  function pick(row, move) {
    state.picked = row;
    element("picked").hidden = row < 0;
    if (row >= 0) {
      element("sentence").textContent = sentences[row];
      element("neighbours").replaceChildren(...sides.flatMap((side) => {
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
      if (row < 0 && state.group >= 0) state.group = -1;
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
  element("all").addEventListener("click", () => { state.group = -1; fit(); });
  element("close").addEventListener("click", () => pick(-1, false));
  search.addEventListener("input", find);
  document.querySelectorAll("input[name=side]").forEach((choice) => choice.addEventListener("change", () => turnTo(Number(choice.value))));
  document.querySelectorAll("[data-group]").forEach((row) => row.addEventListener("click", () => {
    const group = Number(row.dataset.group);
    state.group = state.group === group ? -1 : group;
    if (state.group < 0) return fit();
    show([...order].filter((place) => labels[place] === group));
  }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });

  new ResizeObserver(() => {
    const box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    [width, height] = [box.width, box.height];
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (state.fitted) fit();
    paint();
  }).observe(canvas);
  readColours();
  settle();
  find();
})();
