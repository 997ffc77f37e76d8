// The list of requests.  All text stays text.

import { find } from "./elements.js";
import { follow, get, open, tell } from "./follow.js";
import { query, showFields, showList, startList } from "./list.js";

const SECONDS = 2; // between two looks
const load = follow(look, SECONDS);

async function look() {
    const search = location.search, page = await get("/admin/exchanges", query());
    if (!page) return find("closed").hidden;
    if (search !== location.search) return false;
    open(true);
    showList(page);
    tell(`as of ${new Date().toLocaleTimeString()}`);
    return true;
}

startList(load);
addEventListener("popstate", () => {
    showFields();
    load();
});
document.addEventListener("visibilitychange", () => document.hidden || load());
load();
