// SPDX-License-Identifier: Apache-2.0
// What a session watches: a video file, the camera, or the generated clip. While it plays, its frames go to the session.
import { clipName, drawClip } from './clip.js';

const kThumb = 96;  // pixels of the frames that the page keeps

function drawn(source, width, height, most, quality) {
  const scale = Math.min(1, most / Math.max(width, height)), canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.getContext('2d').drawImage(source, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL('image/jpeg', quality);
}
// A picture as a JPEG, scaled down to the server's largest side; and a small one.
export const still = (source, width, height, most) => drawn(source, width, height, most, 0.9);
export const thumb = (source, width, height) => drawn(source, width, height, kThumb, 0.7);

export class Stage {
  #timer = 0;
  #sending = false;
  #offset = 0;  // of the source's clock to the stream's, which never goes back
  #last = -1;
  #url = '';
  #clip = null;  // {start, at}: the generated clip's clock; start is null while it is paused

  // `send(frame, t_ms, small)` resolves when the server has taken the frame; `failed(error)` when it did not.
  constructor(parts, maxSide, send, failed) {
    Object.assign(this, { parts, maxSide, send, failed });
    parts.unwatch.addEventListener('click', () => this.close());
    parts.fps.addEventListener('change', () => this.#pace());
    parts.pause.addEventListener('click', () => this.#pause());
  }

  get open() { return !this.parts.stage.hidden; }

  // A stream that was restarted begins at 0 again.
  forget() {
    this.#offset = 0;
    this.#last = -1;
  }

  async play(name, source) {
    this.close();
    const { stage, video, watched, pause } = this.parts;
    watched.textContent = name;
    stage.hidden = video.hidden = false;
    pause.hidden = true;
    if (source instanceof Blob) video.src = this.#url = URL.createObjectURL(source);
    else video.srcObject = source;
    try {
      await video.play();
    } catch (error) {
      this.close();
      throw new Error('this browser cannot play ' + name + ': ' + error.message);
    }
    this.#pace();
    await this.#sendFrame();
  }

  async playClip() {
    this.close();
    const { stage, clip, watched, pause, fps } = this.parts;
    watched.textContent = clipName;
    stage.hidden = clip.hidden = pause.hidden = false;
    pause.textContent = 'Pause';
    fps.value = 2;
    this.#clip = { start: performance.now(), at: 0 };
    const draw = () => {
      if (!this.#clip) return;
      drawClip(clip, this.#clipMs());
      requestAnimationFrame(draw);
    };
    draw();
    this.#pace();
    await this.#sendFrame();
  }

  #clipMs() { return this.#clip.at + (this.#clip.start === null ? 0 : performance.now() - this.#clip.start); }

  #pause() {
    const at = this.#clipMs(), paused = this.#clip.start === null;
    this.#clip = { start: paused ? performance.now() : null, at };
    this.parts.pause.textContent = paused ? 'Pause' : 'Play';
  }

  close() {
    clearInterval(this.#timer);
    const { stage, video, clip } = this.parts;
    video.pause();
    video.srcObject?.getTracks().forEach((track) => track.stop());
    video.srcObject = null;
    video.removeAttribute('src');
    video.load();
    if (this.#url) URL.revokeObjectURL(this.#url);
    this.#url = '';
    this.#clip = null;
    stage.hidden = video.hidden = clip.hidden = true;
  }

  #pace() {
    clearInterval(this.#timer);
    if (!this.open) return;
    this.#timer = setInterval(() => this.#sendFrame(), 1000 / Math.min(10, Math.max(0.1, +this.parts.fps.value || 1)));
  }

  // {source, width, height, ms} of what plays; null while nothing does.
  #now() {
    const { video, clip } = this.parts;
    if (this.#clip) {
      if (this.#clip.start === null) return null;
      const ms = this.#clipMs();
      drawClip(clip, ms);  // what is shown may be older where the browser is slow
      return { source: clip, width: clip.width, height: clip.height, ms };
    }
    if (video.paused || video.ended || !video.videoWidth) return null;
    return { source: video, width: video.videoWidth, height: video.videoHeight, ms: video.currentTime * 1000 };
  }

  async #sendFrame() {
    const now = this.#sending ? null : this.#now();
    if (!now) return;
    const moment = Math.round(now.ms);
    // When a video restarts or seeks back, the stream's time keeps growing.
    if (moment + this.#offset <= this.#last) this.#offset = this.#last + 1 - moment;
    const t_ms = moment + this.#offset;
    this.#sending = true;
    this.#last = t_ms;
    try {
      await this.send(still(now.source, now.width, now.height, this.maxSide), t_ms, thumb(now.source, now.width, now.height));
    } catch (error) {
      this.close();
      this.failed(error);
    } finally {
      this.#sending = false;
    }
  }
}
