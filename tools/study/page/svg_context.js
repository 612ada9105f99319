// SPDX-License-Identifier: BSL-1.0
// A drawing context that writes SVG: the part of CanvasRenderingContext2D that the pictures use. So one code draws on the screen and into
// the file. A density is an image within the SVG; axes, texts, points and lines are vectors.
"use strict";

class SvgContext {
  constructor(width, height, paper) {
    this.size = [width, height];
    this.parts = [`<rect width="${width}" height="${height}" fill="${paper}"/>`];
    this.path = [];
    this.clips = 0;
    this.open = 0;
    this.saved = [];
    this.dash = [];
    this.transforms = [];
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "12px sans-serif",
      textAlign: "left" });
    this.textBaseline = "alphabetic";
    this.measure = new OffscreenCanvas(1, 1).getContext("2d");
  }

  escaped(text) { return String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`); }

  add(name, attributes, content) {
    const all = { ...attributes, transform: this.transforms.join(" ") || null, opacity: this.globalAlpha < 1 ? this.globalAlpha : null };
    const text = Object.entries(all).filter(([, value]) => value !== null).map(([key, value]) => {
      return ` ${key}="${this.escaped(typeof value === "number" ? Number(value.toFixed(2)) : value)}"`;
    }).join("");
    this.parts.push(content === undefined ? `<${name}${text}/>` : `<${name}${text}>${content}</${name}>`);
  }

  beginPath() { this.path = []; }
  moveTo(x, y) { this.path.push(`M${x.toFixed(2)} ${y.toFixed(2)}`); }
  lineTo(x, y) { this.path.push(`${this.path.length ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`); }
  closePath() { this.path.push("z"); }
  rect(x, y, width, height) {
    const [left, top, wide, tall] = [x, y, width, height].map((value) => value.toFixed(2));
    this.path.push(`M${left} ${top}h${wide}v${tall}H${left}z`);
  }
  arc(x, y, r) { this.path.push(`M${(x - r).toFixed(2)} ${y.toFixed(2)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`); }
  fill() { this.add("path", { d: this.path.join(""), fill: this.fillStyle }); }
  stroke() { this.add("path", { d: this.path.join(""), fill: "none", ...this.line() }); }
  line() { return { stroke: this.strokeStyle, "stroke-width": this.lineWidth, "stroke-dasharray": this.dash.join(" ") || null }; }
  fillRect(x, y, width, height) { this.add("rect", { x, y, width, height, fill: this.fillStyle }); }
  strokeRect(x, y, width, height) { this.add("rect", { x, y, width, height, fill: "none", ...this.line() }); }
  clearRect() { /* The paper is the first rectangle. */ }
  setLineDash(dash) { this.dash = dash; }
  setTransform() { this.transforms = []; }
  translate(x, y) { this.transforms.push(`translate(${x} ${y})`); }
  rotate(angle) { this.transforms.push(`rotate(${(angle * 180) / Math.PI})`); }
  measureText(text) { this.measure.font = this.font; return this.measure.measureText(text); }

  fillText(text, x, y) {
    const [, weight, size] = /^(600 )?([0-9.]+)px/.exec(this.font) || ["", "", "12"];
    const anchor = { left: "start", right: "end", center: "middle" }[this.textAlign];
    const shift = { alphabetic: 0, middle: 0.35, top: 0.8, bottom: -0.2 }[this.textBaseline] * Number(size);
    const look = { fill: this.fillStyle, "font-size": Number(size), "font-weight": weight ? 600 : null, "text-anchor": anchor };
    this.add("text", { x, y: y + shift, ...look }, this.escaped(text));
  }

  drawImage(canvas, x, y, width, height) {
    this.add("image", { x, y, width, height, preserveAspectRatio: "none", style: "image-rendering:pixelated",
      href: canvas.toDataURL("image/png") });
  }

  save() { this.saved.push([this.open, [...this.transforms]]); }

  restore() {
    const [open, transforms] = this.saved.pop();
    while (this.open > open) { this.parts.push("</g>"); this.open--; }
    this.transforms = transforms;
  }

  clip() {
    this.clips++;
    this.parts.push(`<clipPath id="clip${this.clips}"><path d="${this.path.join("")}"/></clipPath><g clip-path="url(#clip${this.clips})">`);
    this.open++;
  }

  text() {
    const [width, height] = this.size;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" `
      + `font-family="system-ui, sans-serif">\n${this.parts.join("\n")}\n</svg>\n`;
  }
}
