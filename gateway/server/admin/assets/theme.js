// Sets the stored theme before the first paint: a classic script in <head>.
try {
    const stored = localStorage.getItem("gateway-theme");
    if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
} catch { /* No storage: the system chooses the theme. */ }
