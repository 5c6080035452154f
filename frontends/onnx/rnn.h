/* rnn.h - private to rnn_read.c and make_rnn.c: a recurrent layer with its attributes checked. */
#ifndef DTRC_ONNX_RNN_H
#define DTRC_ONNX_RNN_H

#include "import.h"

typedef enum { RNN_PLAIN, RNN_GRU, RNN_LSTM } RnnKind;

typedef enum { ACT_PLAIN, ACT_AFFINE, ACT_THRESHOLDED, ACT_SCALED_TANH, ACT_SOFTSIGN } ActKind;

typedef struct {
    const char *name;
    ActKind kind;
    OpCode op;      /* ACT_PLAIN */
    uint32_t nattr; /* that op reads: alpha, alpha and beta */
    double alpha, beta;
} Activation;

typedef struct {
    const Ctx *c;
    RnnKind kind;
    uint32_t dirs, nact, gates;
    bool reverse, batch_first;
    bool couple; /* LSTM: f = 1 - i (input_forget) */
    bool after;  /* GRU: r scales the state after its product (linear_before_reset) */
    int64_t T, N, I, H;
    double clip; /* 0: none */
    Activation act[6];
    ValueId lens; /* [N], or NO_ID: all sequences are whole */
    ValueId mask; /* [T, N, 1] bool once made from lens */
    ValueId x;    /* [T, N, I] */

    /* the direction at work */
    uint32_t dir;
    bool backward;
    const char *at; /* suffix of names */
    ValueId r, rn, rb, peep[3];
    ValueId h, cell; /* [N, H]; NO_ID: zero */
} Rnn;

/* Attributes, shapes, sequence lengths. */
Res rnn_read(Rnn *l);
/* An input that is not there, or known to be zero. */
bool rnn_is_zero(const Ctx *c, uint32_t input);
/* [N, 1] bool: which sequences have a step t; NO_ID: all of them. */
ValueId rnn_mask(Rnn *l, int64_t t);

#endif
