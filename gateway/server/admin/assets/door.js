// The key: kept for this tab alone, and sent nowhere by itself as a cookie would be.

const PLACE = "gateway-key";

export const key = () => sessionStorage.getItem(PLACE);
export const keep = (text) => sessionStorage.setItem(PLACE, text.trim());
export const forget = () => sessionStorage.removeItem(PLACE);

// Fetch with the key, if there is one.
export function ask(path, options = {}) {
    const shown = key() ? { authorization: `Bearer ${key()}` } : {};
    return fetch(path, { ...options, headers: { ...options.headers, ...shown } });
}

// What an error says of itself; null where it is none of the API's.
export function reason(text) {
    try {
        return JSON.parse(text).error.message;
    } catch {
        return null;
    }
}
