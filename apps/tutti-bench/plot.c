/* Draws the results as an SVG: columns on a logarithmic scale, GB/s on a linear one from 0. */
#include "plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"

enum { LABEL_MAX = 96 };

typedef struct point {
    int series;
    double columns, rate, roof; /* in GB/s; the roof is the copy's */
} point;

struct bench_plot {
    char (*labels)[LABEL_MAX];
    point *points;
    int series, count;
};

int bench_plot_create(bench_plot **plot)
{
    *plot = calloc(1, sizeof **plot);
    return *plot ? APP_OK : app_fail(APP_FAILED, "no memory for --plot");
}

void bench_plot_destroy(bench_plot **plot)
{
    if (!*plot) return;
    free((*plot)->labels);
    free((*plot)->points);
    free(*plot);
    *plot = NULL;
}

/* The number of the line with this label, a new one if there is none; -1: no memory. */
static int series_of(bench_plot *plot, const char *label)
{
    for (int i = 0; i < plot->series; i++)
        if (strcmp(plot->labels[i], label) == 0) return i;
    char(*labels)[LABEL_MAX] = realloc(plot->labels, ((size_t)plot->series + 1) * sizeof *labels);
    if (!labels) return -1;
    plot->labels = labels;
    memcpy(labels[plot->series], label, LABEL_MAX);
    return plot->series++;
}

/* Points stay sorted by columns. */
int bench_plot_add(bench_plot *plot, const bench_result *r)
{
    char label[LABEL_MAX] = "";
    if (r->product || r->added || !(r->reference > 0) || r->columns < 1) return APP_OK;
    snprintf(label, sizeof label, "%s %s%s%s", r->layer, r->pass, *r->variant ? ", " : "",
             r->variant);
    const int series = series_of(plot, label);
    point *points = realloc(plot->points, ((size_t)plot->count + 1) * sizeof *points);
    if (points) plot->points = points;
    if (!points || series < 0) return app_fail(APP_FAILED, "no memory for --plot");
    int at = plot->count++;
    for (; at > 0 && points[at - 1].columns > (double)r->columns; at--) points[at] = points[at - 1];
    points[at] = (point){series, (double)r->columns, r->amount / r->times.median * 1e-9,
                         r->amount / r->reference * 1e-9};
    return APP_OK;
}

/* Drawing */

typedef struct canvas {
    FILE *file;
    double left, top, width, height; /* of the axes, in pixels */
    double low, high;                /* logarithms of the columns */
    double most;                     /* GB/s at the top */
} canvas;

static void put_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        const char *name = *text == '&'   ? "&amp;"
                           : *text == '<' ? "&lt;"
                           : *text == '>' ? "&gt;"
                                          : NULL;
        if (name)
            fputs(name, file);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, file);
    }
}

static double x_of(const canvas *c, double columns)
{
    return c->left + c->width * (log2(columns) - c->low) / (c->high - c->low);
}

static double y_of(const canvas *c, double rate)
{
    return c->top + c->height * (1 - rate / c->most);
}

/* 1, 2 or 5 times a power of ten, of which `most` has at most ten. */
static double step_below(double most)
{
    const double power = pow(10, floor(log10(most / 10)));
    for (double step = power;; step *= 10) {
        if (10 * step >= most) return step;
        if (20 * step >= most) return 2 * step;
        if (50 * step >= most) return 5 * step;
    }
}

static canvas lay_out(const bench_plot *plot, FILE *file)
{
    canvas c = {.file = file, .left = 80, .top = 50, .width = 620, .height = 400, .most = 0};
    double columns[2] = {plot->points[0].columns, plot->points[plot->count - 1].columns};
    for (int i = 0; i < plot->count; i++)
        c.most = fmax(c.most, fmax(plot->points[i].rate, plot->points[i].roof));
    const double step = step_below(c.most);
    c.most = step * ceil(c.most / step);
    c.low = floor(log2(columns[0]));
    c.high = fmax(ceil(log2(columns[1])), c.low + 1);
    return c;
}

static void put_axes(const canvas *c)
{
    const double bottom = c->top + c->height, right = c->left + c->width,
                 step = step_below(c->most);
    for (int i = 0; i <= (int)lrint(c->most / step); i++) {
        const double y = y_of(c, i * step);
        fprintf(c->file,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                c->left, y, right, y, c->left - 8, y + 4, i * step);
    }
    const int apart = (int)ceil((c->high - c->low) / 10);
    for (int i = 0; c->low + i <= c->high; i += apart) {
        const double columns = exp2(c->low + i), x = x_of(c, columns);
        fprintf(c->file,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.0f</text>\n",
                x, c->top, x, bottom, x, bottom + 18, columns);
    }
    fprintf(c->file,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">columns</text>\n"
            "<text x=\"18\" y=\"%.1f\" text-anchor=\"middle\" transform=\"rotate(-90 18 %.1f)\">"
            "GB/s</text>\n",
            c->left + c->width / 2, bottom + 40, c->top + c->height / 2, c->top + c->height / 2);
}

/* Number `place` in the list beside the axes. */
static void put_label(const canvas *c, int place, const char *style, const char *label)
{
    const double x = c->left + c->width + 20, y = c->top + 8 + 18 * place;
    fprintf(
        c->file,
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n<text x=\"%.1f\" y=\"%.1f\">",
        x, y, x + 24, y, style, x + 32, y + 4);
    put_text(c->file, label);
    fputs("</text>\n", c->file);
}

enum { ROOF = -1 }; /* in place of a series */

/* A line through the best at each number of columns: rows may differ. */
static void put_line(const canvas *c, const bench_plot *plot, int series, const char *style)
{
    fprintf(c->file, "<polyline %s points=\"", style);
    for (int i = 0, next; i < plot->count; i = next) {
        const double columns = plot->points[i].columns;
        double rate = 0;
        for (next = i; next < plot->count && plot->points[next].columns == columns; next++) {
            const point *p = &plot->points[next];
            if (series == ROOF || series == p->series)
                rate = fmax(rate, series == ROOF ? p->roof : p->rate);
        }
        if (rate > 0) fprintf(c->file, "%.1f,%.1f ", x_of(c, columns), y_of(c, rate));
    }
    fputs("\"/>\n", c->file);
}

static void put_roof(const canvas *c, const bench_plot *plot)
{
    static const char style[] = "fill=\"none\" stroke=\"black\" stroke-width=\"2\" "
                                "stroke-dasharray=\"6 4\"";
    put_line(c, plot, ROOF, style);
    put_label(c, 0, style, "copy of the same bytes");
}

/* The red (0), green (8) or blue (4) of a hue in degrees at a saturation of 0.7. */
static int part_of(int color, double hue, double lightness)
{
    const double k = fmod(color + hue / 30, 12), a = 0.7 * fmin(lightness, 1 - lightness);
    return (int)lrint(255 * (lightness - a * fmax(-1, fmin(1, fmin(k - 3, 9 - k)))));
}

/* Hues a golden section of the circle apart differ for any number of lines.  Not every viewer knows
 * hsl(). */
static void put_series(const canvas *c, const bench_plot *plot, int series)
{
    char style[128], color[32];
    const double hue = fmod(360 * 0.618034 * series, 360), light = series % 2 ? 0.35 : 0.5;
    snprintf(color, sizeof color, "#%02x%02x%02x", part_of(0, hue, light), part_of(8, hue, light),
             part_of(4, hue, light));
    snprintf(style, sizeof style, "fill=\"none\" stroke=\"%s\" stroke-width=\"2\"", color);
    put_line(c, plot, series, style);
    for (int i = 0; i < plot->count; i++)
        if (plot->points[i].series == series)
            fprintf(c->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                    x_of(c, plot->points[i].columns), y_of(c, plot->points[i].rate), color);
    put_label(c, series + 1, style, plot->labels[series]);
}

int bench_plot_write(const bench_plot *plot, const bench_machine *machine, FILE *file)
{
    if (plot->count == 0) return app_fail(APP_FAILED, "--plot: nothing was compared with a copy");
    const canvas c = lay_out(plot, file);
    const double list = c.top + 18.0 * (plot->series + 2), axes = c.top + c.height + 60;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"%.0f\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"%.0f\" y=\"28\" font-size=\"13\">tutti-bench, %s",
            fmax(list, axes), c.left, machine->cuda ? "cuda: " : "");
    put_text(file, machine->device);
    fputs("</text>\n", file);
    put_axes(&c);
    put_roof(&c, plot);
    for (int i = 0; i < plot->series; i++) put_series(&c, plot, i);
    fputs("</svg>\n", file);
    return APP_OK;
}
