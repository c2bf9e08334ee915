/* --junit: a report for build servers, one test a case. */
#include <stdio.h>

#include "report.h"

static void put_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '&')
            fputs("&amp;", file);
        else if (c == '<')
            fputs("&lt;", file);
        else if (c == '>')
            fputs("&gt;", file);
        else if (c == '"')
            fputs("&quot;", file);
        else
            fputc(c < ' ' ? '?' : c, file);
    }
}

static void put_case(FILE *file, const outcome *o)
{
    fputs("  <testcase classname=\"", file);
    put_text(file, o->layer);
    fputs("\" name=\"", file);
    put_text(file, o->name);
    fprintf(file, "\" time=\"%.6f\">\n", o->seconds);
    if (!o->holds) {
        fputs("    <failure message=\"results do not hold\">", file);
        for (int i = 0; i < o->count; i++) {
            const verdict *d = &o->verdicts[i];
            char why[512];
            if (finding_holds(&d->found)) continue;
            report_why(d, why, sizeof why);
            fprintf(file, "%s/%s: ", tutti_case_part_name(d->tensor->part), d->tensor->name);
            put_text(file, why);
            fputc('\n', file);
        }
        fputs("</failure>\n", file);
    }
    fputs("  </testcase>\n", file);
}

void report_junit(FILE *file, const summary *sum)
{
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", file);
    fprintf(file, "<testsuite name=\"tutti-validate\" tests=\"%d\" failures=\"%d\">\n", sum->cases,
            sum->wrong_cases);
    for (int i = 0; i < sum->cases; i++) put_case(file, &sum->outcomes[i]);
    fputs("</testsuite>\n", file);
}
