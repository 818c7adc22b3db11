/* Tables that sort, and are cards on a narrow screen. */
function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
}

function rowOf(cells) {
    const row = element('tr');
    for (const [text, className, node] of cells) {
        const cell = element('td', text, className);
        if (node) cell.prepend(node);
        row.append(cell);
    }
    return row;
}

/*
 * A table by its titles and rows. On a narrow screen a row is a card: its cells have their titles beside them; the
 * roles keep it a table for who hears it.
 */
function fillTable(table, names, rows, sum) {
    titles(table, names);
    table.setAttribute('role', 'table');
    table.tBodies[0].replaceChildren(...inOrder(table, names, rows));
    if (table.tFoot) table.tFoot.replaceChildren(...(sum ? [sum] : []));
    for (const part of [table.tHead, ...table.tBodies, ...(table.tFoot ? [table.tFoot] : [])]) {
        part.setAttribute('role', 'rowgroup');
        for (const row of part.rows) {
            row.setAttribute('role', 'row');
            [...row.cells].forEach((cell, i) => {
                cell.setAttribute('role', cell.tagName === 'TH' ? 'columnheader' : 'cell');
                if (i > 0) cell.dataset.title = names[i][0];
            });
        }
    }
}

/* By the column that was chosen; what has no key, as the sum of many, stays last. */
function inOrder(table, names, rows) {
    const index = names.findIndex(([name]) => name === table.dataset.by), down = table.dataset.down === 'true';
    if (index < 0 || rows.some((row) => row.keys && row.keys[index] === undefined)) return rows;
    const compare = (a, b) => typeof a === 'string' ? (a < b ? -1 : Number(a > b)) : a - b;
    return [...rows].sort((a, b) => !a.keys || !b.keys ? Number(!a.keys) - Number(!b.keys) :
        (down ? -1 : 1) * compare(a.keys[index], b.keys[index]));
}

/* Titles are buttons that sort. They are made when they change, so that the focus stays. */
function titles(table, names) {
    const said = JSON.stringify(names);
    if (table.dataset.titles !== said) {
        table.dataset.titles = said;
        const row = element('tr');
        for (const [name, className] of names) {
            const cell = element('th', '', className), sort = element('button', name);
            cell.scope = 'col';
            sort.type = 'button';
            sort.addEventListener('click', () => sortBy(table, name, className === 'number'));
            cell.append(className === 'holders' ? name : sort);
            row.append(cell);
        }
        table.tHead.replaceChildren(row);
    }
    for (const cell of table.tHead.rows[0].cells) {
        const order = cell.textContent === table.dataset.by ? table.dataset.down === 'true' ? 'descending' : 'ascending' : 'none';
        cell.setAttribute('aria-sort', order);
    }
}

/* Numbers from the largest on, names from A on; once more turns it round. */
function sortBy(table, name, down) {
    table.dataset.down = table.dataset.by === name ? table.dataset.down !== 'true' : down;
    table.dataset.by = name;
    if (table === at('stages')) showStages();
    else if (table === at('lower')) showLower();
    else if (at('tensors').contains(table)) showInstant(now.made, now.instant);
    else select(view.instant, view.time);
}
