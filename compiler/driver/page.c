/* page.c - the frame of a report: head, style, tables, escaping.
 *
 * Colors are those of Okabe and Ito ("Color Universal Design", 2008), darkened or lightened until
 * text in them has a contrast of 4.5 to 1 with the paper of its scheme. No curve is told by its
 * color alone: dashes and names beside the lines say the same. */
#include "page.h"

#include <errno.h>
#include <string.h>

void page_text(Text *t, const char *s) {
    uint32_t code;
    for (size_t n; *s; s += n ? n : 1) {
        n = utf8_length(s, &code);
        switch (n == 1 ? *s : 0) {
        case '<': text_str(t, "&lt;"); break;
        case '>': text_str(t, "&gt;"); break;
        case '&': text_str(t, "&amp;"); break;
        case '"': text_str(t, "&quot;"); break;
        case '\'': text_str(t, "&#39;"); break;
        default:
            if (!n)
                text_str(t, "&#65533;"); /* not UTF-8 */
            else if (code < 32 || (code >= 127 && code < 160))
                text_char(t, ' ');
            else
                text_add(t, "%.*s", (int)n, s);
        }
    }
}

void page_colors(Text *t) {
    text_str(t,
             ":root{color-scheme:light dark;--paper:#fff;--panel:#f5f7f9;--ink:#1c2126;"
             "--dim:#57606a;--faint:#dbe0e5;--blue:#0068b5;--red:#c24e00;--green:#00795a;"
             "--purple:#a6417f;--gold:#8f6200;--brown:#7a4a1e;--teal:#007a87;--gray:#5d666f;"
             "--bound:#c8862a;--m0:#c3cad2;--m1:#4a90d0;--m2:#e2751f;--m3:#2fa37f;--m4:#b87cc4;"
             "--m5:#dcbf3f}\n"
             "@media (prefers-color-scheme:dark){:root{--paper:#14171b;--panel:#1d2126;"
             "--ink:#e6e8eb;--dim:#a4adb7;--faint:#343a41;--blue:#6cb6ff;--red:#ff9457;"
             "--green:#3ecf9b;--purple:#e3a1cf;--gold:#eab54a;--brown:#cba57e;--teal:#4fd0d8;"
             "--gray:#b3bac2;--bound:#e0a955;--m0:#4d545d;--m1:#4d8fd6;--m2:#f08a4b;--m3:#3fae8a;"
             "--m4:#b98ad0;--m5:#c9a93f}}\n");
}

static void style(Text *t) {
    text_str(t, "<style>\n");
    page_colors(t);
    text_str(
        t, "*{box-sizing:border-box}\n"
           "body{margin:0 auto;padding:1.2em 1em 4em;max-width:70em;background:var(--paper);"
           "color:var(--ink);font:16px/1.5 system-ui,sans-serif}\n"
           "h1{font-size:1.35em;margin:0 0 .3em;overflow-wrap:anywhere}\n"
           "h2{font-size:1.15em;margin:2em 0 .4em}h3{font-size:1em;margin:1.6em 0 .3em}\n"
           "p{margin:.3em 0 .8em;overflow-wrap:anywhere}code{font-size:.9em}\n"
           "summary{font-size:1.15em;font-weight:bold;margin:1.4em 0 .4em;cursor:pointer}\n"
           ".dim,figcaption{color:var(--dim)}figcaption{font-size:.88em}\n"
           ".scroll{overflow-x:auto;margin:.4em 0 1em}\n"
           "table{border-collapse:collapse;font-size:.88em;font-variant-numeric:tabular-nums}\n"
           "caption{text-align:left;font-weight:bold;padding:.4em 0;white-space:nowrap}\n"
           "th,td{padding:.22em .8em .22em 0;text-align:right;white-space:nowrap;"
           "border-bottom:1px solid var(--faint)}\n"
           "th{color:var(--dim);font-weight:600;white-space:normal;vertical-align:bottom}\n"
           ".l{text-align:left}td.note{white-space:normal}td.name{text-align:left;white-space:"
           "normal;overflow-wrap:anywhere;"
           "min-width:12em}\n"
           ".best td{background:var(--panel);font-weight:600}\n"
           "figure{margin:1em 0 1.6em}\n"
           ".plot{position:relative;margin:0 10.5em 5em 3.4em;height:22em;font-size:.85em}\n"
           ".map{margin:2em 1em 4em "
           "3.4em}.top{top:0;transform:translate(-50%,-120%);color:var(--dim)}\n"
           ".plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}\n"
           ".plot path,.plot rect{vector-effect:non-scaling-stroke}\n"
           ".plot span{position:absolute;white-space:nowrap;line-height:1.2}\n"
           ".y{right:100%;transform:translateY(-50%);padding-right:.5em;color:var(--dim)}\n"
           ".y0{transform:translateY(-90%)}\n"
           ".x{top:100%;transform:translateX(-50%);padding-top:.35em;text-align:center;"
           "color:var(--dim)}\n"
           ".plot .xl{top:100%;left:0;right:0;text-align:center;padding-top:3em;color:var(--dim)}\n"
           ".plot.map .xl{padding-top:1.8em}\n"
           ".yl{font-size:.85em;color:var(--dim);margin-bottom:.5em}\n"
           ".tag{left:100%;transform:translateY(-50%);padding-left:.6em;color:var(--c);"
           "font-weight:600}\n"
           ".tag i{font-style:normal;font-weight:400}\n"
           ".at{padding:0 .3em;background:var(--paper);border-radius:3px;color:var(--dim)}\n"
           ".grid{stroke:var(--faint);fill:none}.axis{stroke:var(--dim);fill:none}\n"
           ".curve{stroke:var(--c);stroke-width:2;stroke-dasharray:var(--d);fill:none;"
           "stroke-linejoin:round}\n"
           ".dot{stroke:var(--c);stroke-width:8;stroke-linecap:round;fill:none}\n"
           ".ring{stroke:var(--c);stroke-width:13;stroke-linecap:round;fill:none}"
           ".hole{stroke:var(--paper);stroke-width:9;stroke-linecap:round;fill:none}\n"
           ".lead{stroke:var(--c);stroke-width:1;stroke-dasharray:1 3;fill:none}\n"
           ".bound{fill:var(--bound);fill-opacity:.22;stroke:none}\n"
           ".limit{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:6 4;fill:none}\n"
           ".phase{stroke:var(--dim);stroke-dasharray:2 3;fill:none}\n"
           ".m{fill:var(--c);stroke:var(--paper);stroke-width:.5}\n"
           ".plot .cursor{top:0;bottom:0;border-left:1px solid var(--ink);pointer-events:none}\n"
           ".legend{list-style:none;margin:.2em 0 .6em;padding:0;display:flex;flex-wrap:wrap;"
           "gap:.1em 1.2em;font-size:.88em}\n"
           ".legend li::before{content:'';display:inline-block;width:.85em;height:.85em;"
           "margin-right:.45em;background:var(--c);vertical-align:-.08em;border-radius:2px}\n"
           ".p-static{--c:var(--blue);--d:none}.p-dtr{--c:var(--gold);--d:none}"
           ".p-dtr-eq{--c:var(--purple);--d:7 3}.p-dtr-local{--c:var(--green);--d:3 3}"
           ".p-dynamic{--c:var(--red);--d:12 2}.p-sqrt{--c:var(--brown);--d:10 "
           "4}.p-lru{--c:var(--teal);--d:8 3 2 3}"
           ".p-size{--c:var(--gray);--d:2 4}.p-msps{--c:var(--brown);--d:5 2 2 2 2 2}"
           ".p-ilp,.p-ilp-checkmate{--c:var(--ink);--d:1 3}.p-none{--c:var(--ink);--d:4 4}"
           ".p-bound{--c:var(--dim)}\n"
           ".budget td{padding-top:1em;font-weight:600;text-align:left}\n"
           ".m0{--c:var(--m0)}.m1{--c:var(--m1)}.m2{--c:var(--m2)}.m3{--c:var(--m3)}"
           ".m4{--c:var(--m4)}.m5{--c:var(--m5)}\n"
           ".now{display:block;min-height:1.5em}.now li{overflow-wrap:anywhere}\n"
           "@media (max-width:34em){body{padding:1em .7em 3em}.minor{display:none}"
           ".plot{margin-left:2.9em;margin-right:6em;font-size:.75em}.map{margin-right:.8em;margin-"
           "left:2.9em}}\n"
           "</style>\n");
}

void page_begin(Text *t, const char *title, const char *model) {
    text_str(t, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"
                "style-src 'unsafe-inline';script-src 'unsafe-inline'\">\n"
                "<title>");
    text_add(t, "%s: ", title);
    page_text(t, model);
    text_str(t, "</title>\n");
    style(t);
    text_str(t, "</head><body>\n<h1>");
    page_text(t, model);
    text_str(t, "</h1>\n");
}

/* Only a convenience: at the moment under the pointer, the largest blocks of the map by name. What
 * it writes is text that the page already holds. */
static const char *const script =
    "<script>\n"
    "for (const plot of document.querySelectorAll('.map')) {\n"
    "  const plan = plot.closest('.plan'), list = plan.querySelector('.now');\n"
    "  if (!list) continue;\n"
    "  const blocks = [...plan.querySelectorAll('rect.m')].map(b => ({b, x: +b.getAttribute('x'),\n"
    "    w: +b.getAttribute('width'), h: +b.getAttribute('height')}));\n"
    "  const show = e => {\n"
    "    const r = plot.getBoundingClientRect(), x = (e.clientX - r.left) / r.width * 1000;\n"
    "    if (x < 0 || x > 1000) return;\n"
    "    for (const c of plan.querySelectorAll('.cursor')) {\n"
    "      c.hidden = false;\n"
    "      c.style.left = x / 10 + '%';\n"
    "    }\n"
    "    const there = blocks.filter(o => o.x <= x && x < o.x + o.w).sort((p, q) => q.h - p.h);\n"
    "    list.replaceChildren(...there.slice(0, 10).map(o => {\n"
    "      const li = document.createElement('li');\n"
    "      li.className = o.b.getAttribute('class');\n"
    "      li.textContent = o.b.querySelector('title').textContent;\n"
    "      return li;\n"
    "    }));\n"
    "  };\n"
    "  plot.addEventListener('pointermove', show);\n"
    "  plot.addEventListener('pointerdown', show);\n"
    "}\n"
    "</script>\n";

bool page_end(Text *t, Diag *d, const char *file) {
    text_str(t, script);
    text_str(t, "</body></html>\n");
    if (file_write(file, t->at, t->n)) return true;
    return diag_error(d, (Place){.file = file}, "cannot write the report: %s", strerror(errno));
}

void page_table(Text *t, const char *const *head, uint32_t n) {
    text_str(t, "<div class=\"scroll\"><table><thead><tr>");
    for (uint32_t i = 0; i < n; i++)
        text_add(t, "<th%s>%s</th>", head[i][0] == '<' ? " class=\"l\"" : "",
                 head[i] + (head[i][0] == '<'));
    text_str(t, "</tr></thead><tbody>\n");
}

void page_table_end(Text *t) {
    text_str(t, "</tbody></table></div>\n");
}
