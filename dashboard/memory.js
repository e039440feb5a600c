// What the page remembers: across visits, or while it is open. A browser that stores nothing may refuse even reads.

const own = { localStorage: new Map(), sessionStorage: new Map() };

function recallIn(kind, key) {
  try {
    return window[kind].getItem(key);
  } catch {
    return own[kind].get(key) ?? null;
  }
}

function rememberIn(kind, key, value) {
  try {
    window[kind].setItem(key, value);
  } catch {
    own[kind].set(key, value);
  }
}

export const recall = (key) => recallIn("localStorage", key);
export const remember = (key, value) => rememberIn("localStorage", key, value);
export const recallSecret = (key) => recallIn("sessionStorage", key);
export const rememberSecret = (key, value) => rememberIn("sessionStorage", key, value);
