"use strict";
const at = (id) => document.getElementById(id);
for (const place of document.querySelectorAll(".origin")) place.textContent = location.origin;

const headers = () => {
  const found = {"Content-Type": "application/json"};
  if (at("key") && at("key").value) found.Authorization = "Bearer " + at("key").value.trim();
  return found;
};

// What the server answers, or an error whose message is the server's own sentence.
const ask = async (path, body, signal) => {
  let response;
  try {
    response = await fetch(path, {method: "POST", headers: headers(), body: JSON.stringify(body), signal});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer: is it still running?");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  return answer;
};

const fail = (id, error) => {
  at(id).hidden = !error;
  at(id).textContent = error ? error.message : "";
};

at("pair").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  fail("pair-failure", null);
  try {
    const body = {first: at("first").value, second: at("second").value};
    if (at("model")) body.model = at("model").value;
    const answer = await ask("similarity", body);
    at("value").textContent = answer.cosine.toFixed(3).replace("-", "−");
    // The bar is of what stands below it, since a cosine alone says little.
    at("bar").style.width = (answer.percentile ?? Math.max(0, 100 * answer.cosine)) + "%";
    const text = at("percentile").dataset.index.split(" ").includes(answer.model) ? "the indexed text" : "the text that the encoder was made on";
    at("percentile").textContent = answer.percentile === null ? "" :
      answer.percentile === 100 ? `More similar than any random pair of ${text}.` :
      `More similar than ${answer.percentile.toFixed(1)} % of random pairs of ${text}.`;
    at("cosine").hidden = false;
  } catch (error) {
    at("cosine").hidden = true;
    fail("pair-failure", error);
  } finally {
    button.disabled = false;
  }
});

// A link can carry what to compare and what to search for: #first=…&second=…&q=…
const asked = new URLSearchParams(location.hash.slice(1));
for (const id of ["first", "second"]) if (asked.has(id)) at(id).value = asked.get(id);
if (!at("key")) at("pair").requestSubmit();  // the example, so that the page shows what it is for

for (const id of ["first", "second"]) {
  at(id).addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); at("pair").requestSubmit(); }
  });
}

// What was found is marked on the map, whose own script listens, and says how much of it is there.
let lastFound = [];
const mark = (found) => {
  lastFound = found;
  if (at("map") && !at("map").hidden) at("map").contentWindow.postMessage({found}, "*");
};
const pick = (text) => {
  if (!at("map") || at("map").hidden) return;
  at("map").contentWindow.postMessage({pick: text}, "*");
  at("atlas").scrollIntoView({behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth"});
};
addEventListener("message", (event) => {
  if (!at("map") || event.source !== at("map").contentWindow || !Number.isInteger(event.data?.marked) || !lastFound.length) return;
  at("marked-note").textContent = event.data.marked === lastFound.length ? "" : `${event.data.marked} of them are on the map.`;
});

if (at("query")) {
  let timer = 0;
  let running = null;
  const line = (hit) => {
    const item = document.createElement("li");
    const number = document.createElement("span");
    number.className = "cosine";
    number.textContent = hit.cosine === null ? "" : hit.cosine.toFixed(2).replace("-", "−");
    const text = document.createElement("span");
    text.lang = "";
    text.dir = "auto";
    text.textContent = hit.text;
    const columns = Object.entries(hit.columns).filter(([, value]) => value !== null);
    if (columns.length) {
      const more = document.createElement("span");
      more.className = "columns";
      more.dir = "auto";
      more.textContent = columns.map(([name, value]) => `${name}: ${value}`).join(" · ");
      text.append(more);
    }
    if (!at("map")) { item.append(number, text); return item; }
    const press = document.createElement("button");
    press.type = "button";
    press.title = "Show it on the map";
    press.append(number, text);
    press.addEventListener("click", () => pick(hit.text));
    item.append(press);
    return item;
  };
  const search = async () => {
    if (running) running.abort();
    const query = at("query").value.trim();
    fail("search-failure", null);
    if (!query) { at("hits").replaceChildren(); at("search-note").textContent = at("marked-note").textContent = ""; mark([]); describe(); return; }
    running = new AbortController();
    try {
      const answer = await ask("search", {query, limit: 10}, running.signal);
      at("hits").replaceChildren(...answer.hits.map(line));
      mark(answer.hits.map((hit) => hit.text));
      const milliseconds = Math.max(1, Math.round(1000 * answer.seconds));
      at("search-note").textContent = answer.hits.length ? `${answer.hits.length} hits in ${milliseconds} ms` : "Nothing was found.";
    } catch (error) {
      if (error.name === "AbortError") return;
      at("hits").replaceChildren();
      at("search-note").textContent = at("marked-note").textContent = "";
      mark([]);
      fail("search-failure", error);
    }
  };
  // What there is to be found, until something is looked for.
  const describe = async () => {
    try {
      const response = await fetch("index", {headers: headers()});
      const {rows} = await response.json();
      if (!response.ok || at("query").value.trim()) return;
      at("search-note").textContent = `${rows.toLocaleString("en")} ${rows === 1 ? "sentence" : "sentences"}, searched by meaning and by words.`;
    } catch (error) {
      // A server that does not answer says so when something is looked for.
    }
  };
  if (at("key")) at("key").addEventListener("change", describe); else describe();
  if (asked.has("q")) { at("query").value = asked.get("q"); search(); }
  at("query").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, 200); });
}

// The map is the content of a frame: it is fetched, because a frame's address carries no key.
const showMap = async () => {
  fail("map-failure", null);
  try {
    const response = await fetch("map", {headers: headers()});
    if (response.status === 202) {
      at("map-note").textContent = "The map is being drawn …";
      setTimeout(showMap, 2000);
      return;
    }
    if (response.ok) {
      at("map").srcdoc = await response.text();
      at("map").hidden = false;
      at("map-note").textContent = "";
      return;
    }
    at("map-note").textContent = "";
    fail("map-failure", new Error((await response.json()).error.message));
  } catch (error) {
    at("map-note").textContent = "";
    fail("map-failure", new Error("The server does not answer: is it still running?"));
  }
};

if (at("map")) {
  at("map").addEventListener("load", () => mark(lastFound));
  if (at("key")) {
    at("map-note").textContent = "The map is shown when the key has been given.";
    at("key").addEventListener("change", showMap);
  } else {
    showMap();
  }
}
