/* Embeds the files of src/monitor/page/ and the chart library dygraphs, which the build has put
 * into PAGE_DIR. Depends on nothing. */
#include "monitor/board_page.h"

#include <string.h>

#define EMBED(name, file)                                                \
  __asm__(                                                               \
      "  .section .rodata\n"                                             \
      "page_" #name                                                      \
      ":\n"                                                              \
      "  .incbin \"" PAGE_DIR "/" file                                   \
      "\"\n"                                                             \
      "page_" #name                                                      \
      "_end:\n"                                                          \
      "  .byte 0\n"                                                      \
      "  .previous\n");                                                  \
  extern const char page_##name[] __attribute__((visibility("hidden"))); \
  extern const char page_##name##_end[] __attribute__((visibility("hidden")))

EMBED(html, "board.html");
EMBED(board_css, "board.css");
EMBED(board_js, "board.js");
EMBED(store_js, "store.js");
EMBED(chart_js, "chart.js");
EMBED(curves_js, "curves.js");
EMBED(panels_js, "panels.js");
EMBED(dygraph_js, "dygraph.js");
EMBED(dygraph_css, "dygraph.css");

#define HTML "text/html; charset=utf-8"
#define CSS  "text/css; charset=utf-8"
#define JS   "text/javascript; charset=utf-8"

bool board_page(const char *path, BoardPage *page) {
  const struct {
    const char *path, *type, *begin, *end;
  } files[] = {{"/", HTML, page_html, page_html_end},
               {"/board.css", CSS, page_board_css, page_board_css_end},
               {"/board.js", JS, page_board_js, page_board_js_end},
               {"/store.js", JS, page_store_js, page_store_js_end},
               {"/chart.js", JS, page_chart_js, page_chart_js_end},
               {"/curves.js", JS, page_curves_js, page_curves_js_end},
               {"/panels.js", JS, page_panels_js, page_panels_js_end},
               {"/dygraph.js", JS, page_dygraph_js, page_dygraph_js_end},
               {"/dygraph.css", CSS, page_dygraph_css, page_dygraph_css_end}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    if (strcmp(path, files[i].path) != 0) continue;
    page->type = files[i].type;
    page->bytes = files[i].begin;
    page->len = (size_t)(files[i].end - files[i].begin);
    return true;
  }
  return false;
}
