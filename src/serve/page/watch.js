
// ---- pictures and video: a file or the camera plays, and frames of it go to the session while it does

const watch = { timer: 0, sending: false, offset: 0, last: -1, url: '', read: [] };

const clock = (ms) => Math.floor(ms / 60000) + ':' + (ms / 1000 % 60).toFixed(1).padStart(4, '0');

// The moment of the video that a question was asked at.
function stamp(ms) {
  const time = document.createElement('time');
  time.textContent = '[' + clock(ms) + '] ';
  time.dataset.ms = ms;
  return time;
}

function showVision() {
  $('camera').hidden = !state.vision || !navigator.mediaDevices;
  if (!state.vision) return;
  $('file').accept = 'text/*,.md,.txt,image/*,video/*';
  $('attach').title = 'Read a text, look at a picture, watch a video (or drop it here)';
}

// A picture, or what a video shows now, no larger than the server looks at.
function still(source, width, height) {
  const scale = Math.min(1, state.vision.max_side / Math.max(width, height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.getContext('2d').drawImage(source, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL('image/jpeg', 0.9);
}

const lookAt = (file) => work(async (signal) => {
  const picture = await createImageBitmap(file), image = still(picture, picture.width, picture.height);
  await call('POST', ofSession('/append'), { image }, signal);
  const note = say('note', file.name), shown = document.createElement('img');
  shown.src = image;
  shown.alt = file.name;
  note.append(shown);
});

function forgetFrames() {
  watch.offset = 0;
  watch.last = -1;
  watch.read = [];
}

// Frames of the last ten seconds, by the server's count.
function countFrames(frames) {
  const now = performance.now();
  watch.read.push([now, frames.read]);
  while (watch.read.length > 2 && now - watch.read[0][0] > 10000) watch.read.shift();
  const [then, before] = watch.read[0];
  count({ 'frames looked at': frames.read, 'frames dropped': frames.dropped, 'frames waiting': frames.waiting });
  if (now > then) count({ 'frames a second': ((frames.read - before) / (now - then) * 1000).toFixed(2) });
}

function countSeen(session) {
  if (session.frames?.arrived) countFrames(session.frames);
  const video = session.modalities?.video;
  if (video) count({ 'video held': video.from_ms === undefined ? 'nothing' : clock(video.from_ms) + ' to ' + clock(video.to_ms) });
}

async function sendFrame() {
  const video = $('video');
  if (watch.sending || video.paused || video.ended || !video.videoWidth || !state.id) return;
  const moment = Math.round(video.currentTime * 1000);
  // Where a video starts again or is wound back, the stream's time goes on.
  if (moment + watch.offset <= watch.last) watch.offset = watch.last + 1 - moment;
  const t_ms = moment + watch.offset, id = state.id;
  watch.sending = true;
  try {
    const frame = still(video, video.videoWidth, video.videoHeight);
    const answer = await json('POST', '/v1/sessions/' + id + '/append', { frame, t_ms });
    if (id !== state.id) return;
    watch.last = t_ms;
    countFrames(answer.frames);
    if (!state.busy) await look();
  } catch (error) {
    if (id !== state.id) return;
    say('note error', error.message);
    unwatch();
  } finally {
    watch.sending = false;
  }
}

function pace() {
  clearInterval(watch.timer);
  watch.timer = setInterval(sendFrame, 1000 / Math.min(10, Math.max(0.1, +$('fps').value || 1)));
}

function unwatch() {
  clearInterval(watch.timer);
  const video = $('video');
  video.pause();
  video.srcObject?.getTracks().forEach((track) => track.stop());
  video.srcObject = null;
  video.removeAttribute('src');
  video.load();
  if (watch.url) URL.revokeObjectURL(watch.url);
  watch.url = '';
  $('stage').hidden = true;
}

async function show(name, source) {
  unwatch();
  await work(async () => {});  // a session to show it to
  if (!state.id) return;
  const video = $('video');
  if (source instanceof Blob) {
    video.src = watch.url = URL.createObjectURL(source);
  } else {
    video.srcObject = source;
  }
  $('clip').textContent = name;
  $('stage').hidden = false;
  say('note', 'watching ' + name);
  try {
    await video.play();
    pace();
    await sendFrame();
  } catch (error) {
    say('note error', 'this browser cannot play ' + name + ': ' + error.message);
    unwatch();
  }
}

async function takeFile(file) {
  if (state.vision && file.type.startsWith('image/')) {
    await lookAt(file);
  } else if (state.vision && file.type.startsWith('video/')) {
    await show(file.name, file);
  } else if (/^(image|video)\//.test(file.type)) {
    say('note error', 'this server was started without an encoder for pictures (--mmproj)');
  } else {
    await readText(await file.text(), file.name);
  }
}

$('camera').addEventListener('click', async () => {
  try {
    await show('the camera', await navigator.mediaDevices.getUserMedia({ video: true }));
  } catch (error) {
    say('note error', 'no camera: ' + error.message);
  }
});
$('unwatch').addEventListener('click', unwatch);
$('fps').addEventListener('change', () => { if (!$('stage').hidden) pace(); });
const main = document.querySelector('main');
main.addEventListener('dragover', (event) => { event.preventDefault(); main.classList.add('dropping'); });
main.addEventListener('dragleave', () => main.classList.remove('dropping'));
main.addEventListener('drop', async (event) => {
  event.preventDefault();
  main.classList.remove('dropping');
  for (const file of event.dataTransfer.files) await takeFile(file);
});
start();
