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

// The message of an error; null if the body is not an error of the API.
export function reason(text) {
    try {
        return JSON.parse(text).error.message;
    } catch {
        return null;
    }
}
