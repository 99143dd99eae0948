// A picture that stays true: fetched once, then mended by what the supervisor says has changed. When the supervisor is
// gone the picture stays, and we try again until it is back.

const SILENT_S = 8; // without any sign: it is gone
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 10000;

export class Live {
  // `changed(picture, keys)`: keys of the picture that are new, null for all of them.
  constructor(run, changed) {
    this.run = run;
    this.changed = changed;
    this.picture = null;
    this.status = "loading"; // loading, live, gone, denied, missing
    this.of = null; // when that was seen which the picture shows, supervisor's clock
    this.offset = 0; // supervisor's clock less ours
    this.heardAt = 0;
    this.waitMs = FIRST_WAIT_MS;
    this.closed = false;
    this.held = false;
    this.watch = setInterval(() => this.check(), 1000);
    this.begin();
  }

  // Seconds since the picture was true.
  age() {
    return this.of === null ? null : Math.max(0, this.now() - this.of);
  }

  now() {
    return Date.now() / 1000 + this.offset;
  }

  close() {
    this.closed = true;
    clearInterval(this.watch);
    this.stream?.close();
  }

  async begin() {
    const query = this.run ? `?run=${encodeURIComponent(this.run)}` : "";
    try {
      const answer = await fetch(`picture${query}`, { cache: "no-store" });
      if (this.closed) return;
      if (answer.status === 403 || answer.status === 404) this.status = answer.status === 403 ? "denied" : "missing";
      if (!answer.ok) throw new Error(String(answer.status));
      const found = await answer.json();
      this.picture = found.picture;
      this.hear(found);
      this.changed(this.picture, null);
      this.follow(found.version, query);
    } catch {
      this.lost();
    }
  }

  follow(version, query) {
    const since = `${query ? `${query}&` : "?"}since=${encodeURIComponent(version)}`;
    const stream = (this.stream = new EventSource(`events${since}`));
    stream.addEventListener("change", (event) => {
      const found = JSON.parse(event.data);
      merge(this.picture, found.patch);
      this.hear(found);
      this.changed(this.picture, Object.keys(found.patch));
    });
    stream.addEventListener("beat", (event) => this.hear(JSON.parse(event.data)));
    stream.addEventListener("again", () => { stream.close(); this.begin(); });
    stream.onerror = () => { stream.close(); this.lost(); };
  }

  hear(found) {
    this.of = found.of;
    this.offset = found.now - Date.now() / 1000;
    this.heardAt = performance.now();
    this.status = "live";
    this.waitMs = FIRST_WAIT_MS;
  }

  lost() {
    if (this.closed) return;
    if (this.status !== "denied" && this.status !== "missing") this.status = "gone";
    this.changed(this.picture, []);
    setTimeout(() => this.closed || this.begin(), this.waitMs);
    this.waitMs = Math.min(LONGEST_WAIT_MS, this.waitMs * 1.6);
  }

  // A connection that says nothing any more is as good as none (a proxy may keep it open for minutes).
  check() {
    if (this.status === "live" && performance.now() - this.heardAt > SILENT_S * 1000) {
      this.stream?.close();
      this.lost();
    }
  }
}

// RFC 7386: objects in depth, null removes, everything else replaces.
export function merge(target, patch) {
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete target[key];
    else if (typeof value === "object" && !Array.isArray(value)) {
      if (typeof target[key] !== "object" || target[key] === null || Array.isArray(target[key])) target[key] = {};
      merge(target[key], value);
    } else target[key] = value;
  }
  return target;
}
