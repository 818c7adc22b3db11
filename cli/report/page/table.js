/* Tables that you can sort, and that become cards on a narrow screen. */
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
 * Fills a table with titles and rows. On a narrow screen, a row becomes a card, with a title beside each cell. The roles
 * keep it a table for screen readers.
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

/* Sorts rows by the chosen column. A row without a key, such as a sum, stays last. */
function inOrder(table, names, rows) {
    const index = names.findIndex(([name]) => name === table.dataset.by), down = table.dataset.down === 'true';
    if (index < 0 || rows.some((row) => row.keys && row.keys[index] === undefined)) return rows;
    const compare = (a, b) => typeof a === 'string' ? (a < b ? -1 : Number(a > b)) : a - b;
    return [...rows].sort((a, b) => !a.keys || !b.keys ? Number(!a.keys) - Number(!b.keys) :
        (down ? -1 : 1) * compare(a.keys[index], b.keys[index]));
}

/* Makes the titles, which are buttons that sort. Makes them only when they change, so that the focus stays. */
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

/* Sorts numbers in descending order and names from A to Z. A second click reverses the order. */
function sortBy(table, name, down) {
    table.dataset.down = table.dataset.by === name ? table.dataset.down !== 'true' : down;
    table.dataset.by = name;
    if (table === at('stages')) showStages();
    else if (table === at('lower')) showLower();
    else if (at('tensors').contains(table)) showInstant(now.made, now.instant);
    else select(view.instant, view.time);
}
