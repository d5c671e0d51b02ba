// A page that was opened as a file may start no worker: its search runs in a hidden frame instead.

if (location.protocol === "file:") {
  globalThis.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true, title: "search" });
      document.body.append(frame);
      this.inside = frame.contentWindow;
      address = new URL(address, location);
      const load = (url) => new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        Object.assign(script, { src: new URL(url, address), onload: done, onerror: failed });
        this.inside.document.body.append(script);
      });
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...urls) => Promise.all(urls.map(load));
      this.ready = load(address);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
