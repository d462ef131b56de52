// What every script of a page uses.
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const all = (selector) => [...document.querySelectorAll(selector)];
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const names = read("names");
const looks = read("looks");
