// A page without a connection asks whether anybody is still logged in. After a restart of the dashboard nobody
// is, or a session ends before the first connection: then its socket is refused without a word why, and loading
// the page again leads to the login.
const popup = document.getElementById("popup");
popup.setAttribute("role", "alert");
const opened = Date.now();
const patience = 10_000; // milliseconds in which a first connection is made

setInterval(async () => {
  // A proxy may refuse the socket for ever: the page would be old without a word.
  if (!window.did_handshake && Date.now() - opened > patience) popup.setAttribute("aria-hidden", "false");
  if (window.did_handshake && popup.getAttribute("aria-hidden") !== "false") return;
  try {
    const answer = await fetch("/favicon.ico", { redirect: "manual", cache: "no-store" });
    if (!answer.ok) location.reload();
  } catch {
    // The dashboard itself is away: the socket tries again by itself.
  }
}, 3000);
