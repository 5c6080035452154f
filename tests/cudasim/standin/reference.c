/* reference.c - one training step of the network of program.h, in double precision, by definition.
 */
#include <math.h>
#include <string.h>

#include "program.h"

typedef struct {
    double h[BATCH][PIXELS][FILTERS], dh[BATCH][PIXELS][FILTERS];
    double gw1[W1_COUNT], gb1[FILTERS], gw2[W2_COUNT];
} Work;

static float pixel(const float *images, int n, int y, int x, int c) {
    if (y < 0 || y >= SIDE || x < 0 || x >= SIDE) return 0;
    return images[((n * SIDE + y) * SIDE + x) * CHANNELS + c];
}

/* dh == NULL: h from the images. Else the gradient of the filters. */
static void convolve(const Model *m, const float *images, Work *w, bool backward) {
    for (int n = 0; n < BATCH; n++)
        for (int p = 0; p < PIXELS; p++)
            for (int k = 0; k < FILTERS; k++) {
                double sum = m->b1[k];
                for (int q = 0; q < 9; q++)
                    for (int c = 0; c < CHANNELS; c++) {
                        double v = pixel(images, n, p / SIDE + q / 3 - 1, p % SIDE + q % 3 - 1, c);
                        int at = (k * 9 + q) * CHANNELS + c;
                        sum += v * m->w1[at];
                        if (backward) w->gw1[at] += v * w->dh[n][p][k];
                    }
                if (!backward) w->h[n][p][k] = sum > 0 ? sum : 0;
                if (backward) w->gb1[k] += w->dh[n][p][k];
            }
}

/* Cross-entropy of one image; its gradient goes into gw2 and dh. */
static double classify(const Model *m, Work *w, int n, int label) {
    const double *h = &w->h[n][0][0];
    double *dh = &w->dh[n][0][0], z[CLASSES], top = -INFINITY, sum = 0;
    for (int c = 0; c < CLASSES; c++) {
        z[c] = 0;
        for (int i = 0; i < HIDDEN; i++) z[c] += m->w2[c * HIDDEN + i] * h[i];
        if (z[c] > top) top = z[c];
    }
    for (int c = 0; c < CLASSES; c++) sum += exp(z[c] - top);
    for (int c = 0; c < CLASSES; c++) {
        double dz = (exp(z[c] - top) / sum - (c == label)) / BATCH;
        for (int i = 0; i < HIDDEN; i++) {
            w->gw2[c * HIDDEN + i] += dz * h[i];
            if (h[i] > 0) dh[i] += dz * m->w2[c * HIDDEN + i];
        }
    }
    return (log(sum) + top - z[label]) / BATCH;
}

double reference_step(Model *model, const float *images, const int *labels) {
    static Work w;
    memset(&w, 0, sizeof w);
    double loss = 0;
    convolve(model, images, &w, false);
    for (int n = 0; n < BATCH; n++) loss += classify(model, &w, n, labels[n]);
    convolve(model, images, &w, true);
    for (int i = 0; i < W1_COUNT; i++) model->w1[i] -= (double)rate * w.gw1[i];
    for (int i = 0; i < FILTERS; i++) model->b1[i] -= (double)rate * w.gb1[i];
    for (int i = 0; i < W2_COUNT; i++) model->w2[i] -= (double)rate * w.gw2[i];
    return loss;
}
