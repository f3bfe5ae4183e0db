// Theme, sorting, filtering and the list of runs. Data comes from script files, since fetch is blocked on file://.
"use strict";

(() => {
  const root = document.documentElement;
  const remember = (value) => { try { localStorage.setItem("icml26-theme", value); } catch { /* private mode */ } };
  const recall = () => { try { return localStorage.getItem("icml26-theme"); } catch { return null; } };
  if (recall()) root.dataset.theme = recall();

  function theme() {
    const button = document.getElementById("theme");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      remember(root.dataset.theme);
    });
  }

  const collator = new Intl.Collator("en", { numeric: true });

  // numbers before texts, what is missing last whatever the order
  function compare(a, b, sign) {
    const missingA = a === null || a === "", missingB = b === null || b === "";
    if (missingA || missingB) return missingA - missingB;
    if (typeof a === "number" && typeof b === "number") {
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return sign * (a - b);
    }
    return sign * collator.compare(String(a), String(b));
  }

  function key(row, place) {
    const cell = row.cells[place];
    if (!cell || cell.classList.contains("missing")) return null;
    const given = cell.dataset.sort;
    if (given === undefined) return (cell.dataset.text ?? cell.textContent).trim().toLowerCase();
    const number = given === "inf" ? Infinity : given === "-inf" ? -Infinity : given === "nan" ? NaN : Number(given);
    return given === "" ? null : number;
  }

  // the first click shows the best first
  function nextOrder(header) {
    const now = header.getAttribute("aria-sort");
    const first = header.dataset.direction === "higher" ? "descending" : "ascending";
    return now === null ? first : now === "ascending" ? "descending" : "ascending";
  }

  function headers(table, sort) {
    const all = [...table.tHead.rows[0].cells];
    all.forEach((header, place) => {
      const button = header.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const order = nextOrder(header);
        all.forEach((other) => other.removeAttribute("aria-sort"));
        header.setAttribute("aria-sort", order);
        sort(header, place, order === "ascending" ? 1 : -1);
      });
    });
  }

  function sortable(table) {
    headers(table, (header, place, sign) => {
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row, index) => ({ row, index, key: key(row, place) }));
      rows.sort((a, b) => compare(a.key, b.key, sign) || a.index - b.index);
      body.append(...rows.map((item) => item.row));
    });
  }

  function filterable(input) {
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      document.querySelectorAll(input.dataset.filter).forEach((item) => {
        const text = (item.cells ? item.cells[0] : item).textContent.toLowerCase();
        item.hidden = !words.every((word) => text.includes(word));
      });
    });
  }

  const PAGE = 50;
  const COLUMNS = { page: 0, started: 1, task: 2, method: 3, dataset: 4, seed: 5, status: 6, metric: 7, value: 8, seconds: 9, superseded: 10 };
  const BAD = "not succeeded";

  function decode(data) {
    const coded = [COLUMNS.task, COLUMNS.method, COLUMNS.dataset, COLUMNS.status, COLUMNS.metric];
    return data.rows.map((row) => row.map((cell, place) => {
      if (coded.includes(place)) return data.strings[cell];
      return cell !== null && typeof cell === "object" ? { nan: NaN, inf: Infinity, "-inf": -Infinity }[cell.nonfinite] : cell;
    }));
  }

  function runs(table) {
    const all = decode(window.icml26Runs || { strings: [], rows: [] });
    all.sort((a, b) => compare(a[COLUMNS.started], b[COLUMNS.started], -1) || compare(a[0], b[0], -1));
    const form = document.getElementById("filters");
    const body = table.tBodies[0];
    const names = ["task", "method", "dataset", "status"];
    let shown = all, start = 0;
    form.hidden = false;
    document.getElementById("pager").hidden = false;

    names.forEach((name) => {
      const select = form.elements[name];
      const values = [...new Set(all.map((row) => row[COLUMNS[name]]))].sort(collator.compare);
      if (name === "status" && values.some((value) => value !== "succeeded")) values.push(BAD);
      select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    });

    function text(tag, content, name) {
      const cell = document.createElement(tag);
      cell.textContent = content;
      if (name) cell.className = name;
      return cell;
    }

    function format(value) {
      if (value === null || value === undefined) return "–";
      return Number.isFinite(value) ? String(Number(value.toPrecision(4))) : String(value);
    }

    function line(row) {
      const tr = document.createElement("tr");
      const method = document.createElement("td");
      const link = text("a", row[COLUMNS.method]);
      link.href = "runs/" + encodeURIComponent(row[COLUMNS.page]);
      method.append(link);
      if (row[COLUMNS.superseded]) method.append(" ", text("span", "superseded", "tag"));
      const end = document.createElement("td");
      end.append(text("span", row[COLUMNS.status], "status " + (row[COLUMNS.status] === "succeeded" ? "ok" : "no")));
      const score = text("td", format(row[COLUMNS.value]), "value");
      if (row[COLUMNS.metric]) score.append(" ", text("span", row[COLUMNS.metric], "unit"));
      tr.append(method, text("td", row[COLUMNS.dataset]), text("td", row[COLUMNS.seed], "value"), end, score,
        text("td", row[COLUMNS.seconds] === null ? "–" : format(row[COLUMNS.seconds]) + " s", "value"),
        text("td", row[COLUMNS.started] || "–", "nowrap"), text("td", row[COLUMNS.task]));
      return tr;
    }

    function draw() {
      start = Math.max(0, Math.min(start, shown.length - 1));
      start -= start % PAGE;
      const part = shown.slice(start, start + PAGE);
      body.replaceChildren(...part.map(line));
      document.getElementById("count").textContent =
        shown.length === all.length ? `${all.length} runs` : `${shown.length} of ${all.length} runs`;
      document.getElementById("where").textContent = shown.length ? `${start + 1}–${start + part.length} of ${shown.length}` : "none";
      document.getElementById("before").disabled = start === 0;
      document.getElementById("after").disabled = start + PAGE >= shown.length;
    }

    function filter() {
      const words = form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
      shown = all.filter((row) =>
        names.every((name) => {
          const wanted = form.elements[name].value, value = row[COLUMNS[name]];
          return wanted === "" || value === wanted || (name === "status" && wanted === BAD && value !== "succeeded");
        }) && words.every((word) => row.some((cell) => String(cell).toLowerCase().includes(word))));
      start = 0;
      draw();
    }

    function fromAddress() {
      const asked = new URLSearchParams(location.hash.slice(1));
      names.forEach((name) => { form.elements[name].value = asked.get(name) || ""; });
      form.elements.q.value = asked.get("q") || "";
      filter();
    }

    headers(table, (header, _place, sign) => {
      const column = Number(header.dataset.column);
      shown.sort((a, b) => compare(a[column], b[column], sign));
      if (shown !== all) all.sort((a, b) => compare(a[column], b[column], sign));
      start = 0;
      draw();
    });
    for (const event of ["input", "change"]) form.addEventListener(event, filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("before").addEventListener("click", () => { start -= PAGE; draw(); scrollTo(0, 0); });
    document.getElementById("after").addEventListener("click", () => { start += PAGE; draw(); scrollTo(0, 0); });
    addEventListener("hashchange", fromAddress);
    fromAddress();
  }

  document.addEventListener("DOMContentLoaded", () => {
    theme();
    document.querySelectorAll("table.sortable").forEach(sortable);
    document.querySelectorAll("input[data-filter]").forEach(filterable);
    const table = document.getElementById("runs");
    if (table) runs(table);
  });
})();
