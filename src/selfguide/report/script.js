"use strict";
(() => {
  // Tables: a click on a heading sorts by it, a second one reverses the order, a third one restores the original order.
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  function sortable(table) {
    const body = table.tBodies[0];
    const first = [...body.rows];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      const numeric = heading.classList.contains("number");
      const orders = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
      button.addEventListener("click", () => {
        const next = orders[orders.indexOf(heading.getAttribute("aria-sort")) + 1];
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        if (next) heading.setAttribute("aria-sort", next);
        body.append(...(next ? sorted(first, place, numeric, next === "ascending" ? 1 : -1) : first));
      });
    });
  }

  function sorted(rows, place, numeric, sign) {
    const key = (row) => {
      const cell = row.cells[place];
      if (!numeric) return cell.textContent;
      return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
    };
    return [...rows].sort((one, two) => {
      const [a, b] = [key(one), key(two)];
      if (a === null || b === null) return (a === null) - (b === null); // rows without a number stay at the end
      return sign * (numeric ? a - b : collator.compare(a, b));
    });
  }

  document.querySelectorAll("table[data-sortable]").forEach(sortable);

  // The explorer: choose a sentence, see its nearest before and after training.
  const carried = document.getElementById("evidence");
  if (carried) explore(JSON.parse(carried.textContent));

  function explore(evidence) {
    const element = (id) => document.getElementById(id);
    const pick = element("pick"), search = element("search");

    function list(target, neighbours, known) {
      target.replaceChildren(...neighbours.map(([place, cosine]) => {
        const item = document.createElement("li");
        const number = document.createElement("span");
        number.className = "cosine";
        number.textContent = cosine.toFixed(2).replace("-", "−");
        const sentence = document.createElement("span");
        sentence.lang = "";
        sentence.dir = "auto";
        sentence.textContent = evidence.sentences[place];
        item.append(number, sentence);
        if (known && !known.has(place)) {
          const mark = document.createElement("span");
          mark.className = "fresh";
          mark.textContent = "new";
          item.append(mark);
        }
        return item;
      }));
    }

    function answer() {
      const place = Number(pick.value);
      if (pick.value === "") return;
      element("picked").textContent = evidence.sentences[place];
      const before = evidence.before.nearest[place];
      list(element("nearest-before"), before, null);
      list(element("nearest-after"), evidence.after.nearest[place], new Set(before.map(([other]) => other)));
    }

    // Without case, accents and vowel marks: "nina" finds "niña".
    const plain = (text) => text.normalize("NFD").replace(/\p{Mn}/gu, "").toLowerCase();

    function offer() {
      const words = plain(search.value).split(/\s+/).filter(Boolean);
      const chosen = pick.value;
      const fitting = evidence.sentences
        .map((sentence, place) => [sentence, place])
        .filter(([sentence]) => words.every((word) => plain(sentence).includes(word)));
      pick.replaceChildren(...fitting.map(([sentence, place]) => new Option(sentence, place)));
      pick.value = chosen;
      if (pick.selectedIndex < 0 && fitting.length) pick.selectedIndex = 0;
      element("found").textContent = words.length ? `${fitting.length} of ${evidence.sentences.length} sentences` : "";
      answer();
    }

    // A link can name a sentence: #sentence-12.
    function fromAddress() {
      const named = /^#sentence-(\d+)$/.exec(location.hash);
      if (!named || Number(named[1]) >= evidence.sentences.length) return;
      search.value = "";
      offer();
      pick.value = named[1];
      answer();
      element("explorer").scrollIntoView();
    }

    search.addEventListener("input", offer);
    pick.addEventListener("input", answer);
    addEventListener("hashchange", fromAddress);
    element("explorer").hidden = false;
    offer();
    fromAddress();
  }

  // Nothing can be opened on paper, so printing opens what is folded.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
