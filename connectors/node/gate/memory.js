/** A map that forgets what was used least recently. */
export class Memory {
  constructor(most) {
    this.most = most;
    this.all = new Map();
  }

  get(key) {
    const value = this.all.get(key);
    if (value !== undefined) {
      this.all.delete(key);
      this.all.set(key, value);
    }
    return value;
  }

  set(key, value) {
    this.all.delete(key);
    this.all.set(key, value);
    if (this.all.size > this.most) this.all.delete(this.all.keys().next().value);
  }

  delete(key) {
    this.all.delete(key);
  }
}
