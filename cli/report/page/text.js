/* The data that the command put into the page, and texts of sizes and times. */
const NS = 1e9;

const data = JSON.parse(document.getElementById('data').textContent);
const at = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* ---- Sizes and times ---- */

const UNITS = [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10], ['B', 1]];
const unitFor = (bytes) => UNITS.find(([, size]) => bytes >= size) || UNITS[3];
function sizeText(bytes) {
    const [name, size] = unitFor(Math.abs(bytes));
    return size === 1 ? bytes + ' B' : (bytes / size).toFixed(1) + ' ' + name;
}
/* Keeps a size and its unit on one line in a list. */
const unbroken = (text) => text.replace(' ', '\u00a0');
const COUNTS = new Intl.NumberFormat('en-US'); /* made once, as toLocaleString() makes one for each call */
const count = (number) => COUNTS.format(number);
const counted = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
/* Formats seconds with enough digits to tell instants of a range apart. */
function timeText(ns, range) {
    const digits = Math.min(9, Math.max(0, Math.ceil(Math.log10(NS * 1000 / Math.max(range, 1)))));
    return (ns / NS).toFixed(digits) + ' s';
}

/* Returns the number of decimals of an axis's step: 2 for 0.25. */
function digitsOf(step) {
    let digits = 0;
    while (digits < 9 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
    return digits;
}
