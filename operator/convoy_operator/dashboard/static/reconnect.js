// A disconnected page checks its session. Without a session the server rejects the websocket and gives no reason:
// after a restart of the dashboard, or if the session ended before the first connection. Reloading the page then
// leads to the login.
const popup = document.getElementById("popup");
popup.setAttribute("role", "alert");
const opened = Date.now();
const connectTimeout = 10_000; // milliseconds for the first connection

setInterval(async () => {
  // A proxy may block the websocket forever. Without this notice the page would be stale without a sign.
  if (!window.did_handshake && Date.now() - opened > connectTimeout) popup.setAttribute("aria-hidden", "false");
  if (window.did_handshake && popup.getAttribute("aria-hidden") !== "false") return;
  try {
    const response = await fetch("/favicon.ico", { redirect: "manual", cache: "no-store" });
    if (!response.ok) location.reload();
  } catch {
    // The dashboard does not answer. The websocket retries.
  }
}, 3000);
