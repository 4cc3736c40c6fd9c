// SPDX-License-Identifier: Apache-2.0
// Tables that are written again each second: what has not changed stays as it is, so that
// neither a selection nor the focus is lost.

/**
 * Shows a table in host. columns are headings; the first is of row headings. rows are lists of
 * cells: a text, or {text, swatch, dashed, choose, level, note}. swatch is a colour of style.css; choose
 * the value of data-choose of a button; level colours a cell; note stands below it, smaller.
 */
export function table(host, { label, columns, rows, compact, none }) {
  if (rows.length === 0 && none) {
    message(host, none);
    return;
  }
  const element = frame(host, label, columns, compact);
  const body = element.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => {
    const row = body.rows[i] ?? newRow(body, columns);
    cells.forEach((c, k) => fill(row.cells[k], typeof c === 'object' ? c : { text: c }));
  });
}

function message(host, text) {
  if (host.dataset.message === text) return;
  const p = document.createElement('p');
  p.className = 'none';
  p.textContent = text;
  host.replaceChildren(p);
  host.dataset.message = text;
}

// frame returns the table of host with these headings. Roles are said in words, since on a
// phone rows are no table rows to the browser.
function frame(host, label, columns, compact) {
  let element = host.querySelector('table');
  if (!element || element.tHead.rows[0].cells.length !== columns.length) {
    element = document.createElement('table');
    element.setAttribute('role', 'table');
    const head = element.createTHead();
    head.setAttribute('role', 'rowgroup');
    const row = head.insertRow();
    row.setAttribute('role', 'row');
    for (let i = 0; i < columns.length; i++) {
      const th = document.createElement('th');
      th.scope = 'col';
      th.setAttribute('role', 'columnheader');
      row.append(th);
    }
    element.createTBody().setAttribute('role', 'rowgroup');
    host.replaceChildren(element);
    delete host.dataset.message;
  }
  element.classList.toggle('compact', Boolean(compact));
  element.setAttribute('aria-label', label);
  columns.forEach((c, i) => write(element.tHead.rows[0].cells[i], c));
  if (element.dataset.columns !== columns.join()) {
    element.dataset.columns = columns.join();
    for (const row of element.tBodies[0].rows) columns.forEach((c, i) => { row.cells[i].dataset.label = c; });
  }
  return element;
}

function newRow(body, columns) {
  const row = body.insertRow();
  row.setAttribute('role', 'row');
  columns.forEach((c, i) => {
    const cell = document.createElement(i === 0 ? 'th' : 'td');
    if (i === 0) cell.scope = 'row';
    cell.setAttribute('role', i === 0 ? 'rowheader' : 'cell');
    cell.dataset.label = c;
    row.append(cell);
  });
  return row;
}

const write = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

function fill(cell, { text, swatch, dashed, choose, level, note }) {
  const key = [swatch, dashed, choose, note !== undefined].join();
  if (cell.dataset.key !== key) {
    cell.dataset.key = key;
    cell.replaceChildren(...parts(swatch, dashed, choose, note));
  }
  write(cell.querySelector('.text'), String(text));
  if (note !== undefined) write(cell.querySelector('.note'), note);
  if ((cell.dataset.level ?? '') !== (level ?? '')) cell.dataset.level = level ?? '';
}

function parts(swatch, dashed, choose, note) {
  const list = [];
  if (swatch) {
    const s = document.createElement('span');
    s.className = dashed ? 'swatch dashed' : 'swatch';
    s.style.setProperty('--swatch', `var(${swatch})`);
    s.setAttribute('aria-hidden', 'true');
    list.push(s);
  }
  const text = document.createElement(choose === undefined ? 'span' : 'button');
  if (choose !== undefined) {
    text.type = 'button';
    text.dataset.choose = choose;
  }
  text.className = choose === undefined ? 'text' : 'text link';
  list.push(text);
  if (note !== undefined) {
    const n = document.createElement('span');
    n.className = 'note';
    list.push(n);
  }
  return list;
}
