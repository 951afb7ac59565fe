import { el } from "./dom.js";

/* Images between files, canvases and models: a model's image is [C * H * W] in [0, 1]. */

const MAX_UPLOAD = 10 << 20;
const MAX_PIXELS = 12e6;

export function canvasOf(shape, attributes = {}) {
  return el("canvas", { width: shape[2], height: shape[1], class: "pixels", role: "img", ...attributes });
}

function pixelsOf(images, [channels, height, width]) {
  const gap = images.length > 1 ? 1 : 0;
  const wide = images.length * (width + gap) - gap;
  const data = new ImageData(wide, height);
  data.data.fill(128);
  images.forEach((image, place) => {
    const start = place * (width + gap);
    for (let y = 0; y < height; y++)
      for (let x = 0; x < width; x++) {
        const [from, to] = [y * width + x, 4 * (y * wide + start + x)];
        for (let c = 0; c < 3; c++) data.data[to + c] = 255 * image[(channels >= 3 ? c : 0) * height * width + from];
        data.data[to + 3] = 255;
      }
  });
  return data;
}

/* One image, or a few in a row with a thin line between them. */
export function paint(canvas, images, shape) {
  const pixels = pixelsOf(Array.isArray(images) ? images : [images], shape);
  if (canvas.width !== pixels.width) canvas.width = pixels.width;
  if (canvas.height !== pixels.height) canvas.height = pixels.height;
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

function imageOf({ data, width: wide }, left, top, [channels, height, width]) {
  const image = new Float32Array(channels * height * width);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const from = 4 * ((top + y) * wide + left + x);
      for (let c = 0; c < channels; c++)
        image[(c * height + y) * width + x] =
          channels === 1 && data[from] !== data[from + 1]
            ? (0.299 * data[from] + 0.587 * data[from + 1] + 0.114 * data[from + 2]) / 255
            : data[from + Math.min(c, 2)] / 255;
    }
  return image;
}

/* Once it is aborted, its connection is free for others: a browser has six for a host. */
function pictureElement(src, signal) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    signal?.addEventListener("abort", () => {
      image.removeAttribute("src");
      reject(new Error("The images of the data set are not needed any more."));
    });
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("The images of the data set could not be loaded."));
    image.src = src;
  });
}

/* Images of a sheet, in columns and rows without gaps. */
export async function readSheet(src, shape, most, signal) {
  const picture = await pictureElement(src, signal);
  const [, height, width] = shape;
  const [cols, rows] = [Math.floor(picture.naturalWidth / width), Math.floor(picture.naturalHeight / height)];
  if (!cols || !rows || picture.naturalWidth * picture.naturalHeight > MAX_PIXELS) throw new Error("The images of the data set have another size.");
  const canvas = el("canvas", { width: cols * width, height: rows * height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height);
  const count = Math.min(most, cols * rows);
  return Array.from({ length: count }, (_, place) => imageOf(pixels, (place % cols) * width, Math.floor(place / cols) * height, shape));
}

/* A picture of any size, cut at its centre and scaled; black behind what is transparent. */
export function fitted(picture, wide, high, shape) {
  const [channels, height, width] = shape;
  if (channels !== 1 && channels !== 3) throw new Error(`This model's images have ${channels} channels; a picture has 1 or 3.`);
  const canvas = el("canvas", { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  const scale = Math.max(width / wide, height / high);
  context.drawImage(picture, (width - wide * scale) / 2, (height - high * scale) / 2, wide * scale, high * scale);
  return imageOf(context.getImageData(0, 0, width, height), 0, 0, shape);
}

export async function readUpload(file, shape) {
  if (file.size > MAX_UPLOAD) throw new Error(`The image is larger than ${MAX_UPLOAD >> 20} MB; choose a smaller one.`);
  const picture = await createImageBitmap(file).catch(() => {
    throw new Error("This is not a whole PNG or JPEG image.");
  });
  return fitted(picture, picture.width, picture.height, shape);
}

/* A field to draw on with mouse or finger; `take` gets the image after each stroke. */
export function drawingField(shape, take) {
  const [channels, height, width] = shape;
  const side = 256;
  const canvas = el("canvas", { width: Math.round((side * width) / height), height: side, class: "drawing", "aria-label": "Field to draw on" });
  const context = canvas.getContext("2d");
  const ink = el("input", { type: "color", value: "#ffffff", "aria-label": "Ink" });
  const size = el("input", { type: "range", min: 4, max: 80, value: 28, "aria-label": "Width of the pen" });
  const clear = () => context.fillRect(0, 0, canvas.width, canvas.height);
  clear();
  let last = null;
  const at = (event) => [event.offsetX * (canvas.width / canvas.clientWidth), event.offsetY * (canvas.height / canvas.clientHeight)];
  const stroke = (event) => {
    if (!last) return;
    const next = at(event);
    Object.assign(context, { strokeStyle: ink.value, lineWidth: size.valueAsNumber, lineCap: "round" });
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...next);
    context.stroke();
    last = next;
    take(fitted(canvas, canvas.width, canvas.height, shape));
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = at(event);
    stroke(event);
  });
  canvas.addEventListener("pointermove", stroke);
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
  const empty = el("button", { type: "button", click: clear }, "Clear");
  return el("div", { class: "draw" }, canvas, el("div", { class: "row" }, channels === 1 ? null : ink, el("label", {}, "Pen ", size), empty));
}
