/* node_places_test.c - what operators become that read or write at places, resize, rearrange or
 * draw: Gather and Scatter families, TopK, OneHot, Tile, Resize, Einsum, random numbers.
 * Input x is [2,3,8] unless a test says otherwise; weights are zeros. */
#include "node_model.h"

static void floats(const char *name, const char *dims, const float *v) {
    Buf a = {0}, t = tensor_f32("", dims, v);
    attr_put_tensor(&a, "value", &t);
    model_node(&m, "Constant", name, "", name, &a);
}

static void test_places(void) {
    begin(13);
    model_const(&m, "i", "2,3,2", "0,1,2,3,4,5,6,7,-1,-2,-3,-8");
    attr_put_int(&attr, "axis", -1);
    run("GatherElements", "x,i", "y", "GatherElements(x,i) axis=2 -> y[2,3,2]\n");
    begin(13);
    model_const(&m, "i", "1,1,1", "8");
    attr_put_int(&attr, "axis", 2);
    run("GatherElements", "x,i", "y", "index 8 is outside of an axis of size 8");
    begin(16);
    model_const(&m, "i", "1,1,2", "0,1");
    weight("u", "1,1,2");
    attr_put_int(&attr, "axis", 2);
    attr_put_text(&attr, "reduction", "add");
    run("ScatterElements", "x,i,u", "y", "ScatterElements(i,u,x) axis=2 reduction=1 -> y[2,3,8]\n");
    begin(16);
    model_const(&m, "i", "1,1,2", "0,1");
    weight("u", "1,1,2");
    attr_put_text(&attr, "reduction", "xor");
    run("ScatterElements", "x,i,u", "y", "reduction is xor, expected none, add, mul, max or min");
    begin(13);
    model_const(&m, "i", "2,1", "0,1");
    attr_put_int(&attr, "batch_dims", 1);
    run("GatherND", "x,i", "y", "GatherND(x,i) batch_dims=1 -> y[2,8]\n");
    begin(13);
    model_const(&m, "i", "1,4", "0,1,0,0");
    run("GatherND", "x,i", "y", "expected indices into shape [2,3,8] over 0 batch axes");
    begin(13);
    model_const(&m, "i", "1,2", "1,2");
    weight("u", "1,8");
    run("ScatterND", "x,i,u", "y", "ScatterND(i,u,x) reduction=0 -> y[2,3,8]\n");
    begin(11);
    model_const(&m, "k", "1", "3");
    attr_put_int(&attr, "largest", 0);
    run("TopK", "x,k", "y,p", "TopK(x) axis=2 k=3 largest=0 -> y[2,3,3]\n");
    begin(11);
    model_const(&m, "k", "1", "9");
    run("TopK", "x,k", "y,p", "expected a k of 0..8, found 9");
}

static void test_made(void) {
    begin_with(11, "N");
    model_const(&m, "d", "", "5");
    floats("v", "2", (const float[]){0, 1});
    run("OneHot", "x,d,v", "y",
        "Cast(x) to=2 -> n.int.out[2]\nReshape(n.int.out) shape=2,1 -> n.index.out[2,1]\n"
        "Less(n.index.out,n.zero) -> n.negative.out[2,1]\n"
        "Add(n.index.out,n.depth) -> n.wrapped.out[2,1]\n"
        "Where(n.negative.out,n.wrapped.out,n.index.out) -> n.at.out[2,1]\n"
        "Equal(n.at.out,n.place) -> n.hot.out[2,5]\nWhere(n.hot.out,n.on,n.off) -> y[2,5]\n");
    begin(14);
    attr_put_int(&attr, "upper", 0);
    run("Trilu", "x", "y", "Where(n.mask,x,n.zero) -> y[2,3,8]\n");
    begin(13);
    model_const(&m, "r", "3", "1,2,1");
    run("Tile", "x,r", "y",
        "Reshape(x) shape=2,1,24 -> n.axis1.rows.out[2,1,24]\n"
        "Expand(n.axis1.rows.out) shape=2,2,24 -> n.axis1.out[2,2,24]\n"
        "Reshape(n.axis1.out) shape=2,6,8 -> n.axis1.view.out[2,6,8]\n"
        "Reshape(n.axis1.view.out) shape=2,6,8 -> y[2,6,8]\n");
    begin(13);
    model_const(&m, "r", "3", "1,0,1");
    run("Tile", "x,r", "y", "repeat 0 is out of range");
    begin(13);
    model_init(&m, tensor_raw("b", BOOLS, "3", "\1\0\1", 3));
    attr_put_int(&attr, "axis", 1);
    run("Compress", "x,b", "y", "Gather(x,n.places) axis=1 -> y[2,2,8]\n");
}

static void test_images(void) {
    begin_with(11, "N,4,4,6");
    floats("s", "4", (const float[]){1, 1, 2, 2});
    attr_put_text(&attr, "mode", "linear");
    run("Resize", "x,,s", "y",
        "Resize(x) sizes=2,4,8,12 scales=1,1,2,2 mode=1 coord=0 -> y[2,4,8,12]\n");
    begin_with(11, "N,4,4,6");
    model_const(&m, "z", "4", "2,4,2,9");
    attr_put_text(&attr, "coordinate_transformation_mode", "align_corners");
    attr_put_text(&attr, "nearest_mode", "floor");
    run("Resize", "x,,,z", "y",
        "Resize(x) sizes=2,4,2,9 scales=1,1,0.5,1.5 mode=0 coord=2 rounding=2 -> y[2,4,2,9]\n");
    begin_with(18, "N,4,4,6"); /* 4 to 8 would be twice, 6 to 9 is 1.5 times: the smaller one */
    model_const(&m, "z", "2", "8,9");
    attr_put_ints(&attr, "axes", "2,3");
    attr_put_text(&attr, "keep_aspect_ratio_policy", "not_larger");
    attr_put_text(&attr, "mode", "cubic");
    attr_put_int(&attr, "antialias", 1);
    run("Resize", "x,,,z", "y",
        "Resize(x) sizes=2,4,6,9 scales=1,1,1.5,1.5 mode=2 coord=0 cubic=-0.75 antialias=1 -> "
        "y[2,4,6,9]\n");
    begin_with(10, "N,4,4,6");
    floats("s", "4", (const float[]){1, 1, 0.1f, 1});
    run("Resize", "x,s", "y", "axis 2 of size 4 would get the size 0");
    begin_with(9, "N,4,4,6");
    floats("s", "4", (const float[]){1, 1, 1, 1});
    run("Upsample", "x,s", "y", "Reshape(x) shape=2,4,4,6 -> y[2,4,4,6]\n");
    begin_with(11, "N,8,4,6");
    attr_put_int(&attr, "blocksize", 2);
    attr_put_text(&attr, "mode", "CRD");
    run("DepthToSpace", "x", "y",
        "Reshape(x) shape=2,2,2,2,4,6 -> n.split.out[2,2,2,2,4,6]\n"
        "Transpose(n.split.out) perm=0,1,4,2,5,3 -> n.turn.out[2,2,4,2,6,2]\n"
        "Reshape(n.turn.out) shape=2,2,8,12 -> y[2,2,8,12]\n");
    begin_with(11, "N,4,4,6");
    attr_put_int(&attr, "blocksize", 4);
    run("SpaceToDepth", "x", "y", "shape [2,4,4,6] for blocks of 4");
    begin_with(11, "N,4,4,6");
    attr_put_int(&attr, "size", 3);
    run("LRN", "x", "y",
        "PowScalar(x) alpha=2 -> n.square.out[2,4,4,6]\n"
        "Reshape(n.square.out) shape=2,1,4,24 -> n.rows.out[2,1,4,24]\n"
        "AveragePool(n.rows.out) kernel=3,1 strides=1,1 pads=1,0,1,0 count_include_pad=1 -> "
        "n.mean.out[2,1,4,24]\n"
        "Reshape(n.mean.out) shape=2,4,4,6 -> n.image.out[2,4,4,6]\n"
        "Scale(n.image.out) alpha=0.0001 beta=1 -> n.base.out[2,4,4,6]\n"
        "PowScalar(n.base.out) alpha=-0.75 -> n.power.out[2,4,4,6]\n"
        "Mul(x,n.power.out) -> y[2,4,4,6]\n");
    begin_with(11, "N,4,4,6");
    attr_put_ints(&attr, "kernel_shape", "2,2");
    attr_put_int(&attr, "p", 1);
    run("LpPool", "x", "y",
        "Abs(x) -> n.abs.out[2,4,4,6]\n"
        "AveragePool(n.abs.out) kernel=2,2 strides=1,1 pads=0,0,0,0 count_include_pad=1 -> "
        "n.mean.out[2,4,3,5]\nScale(n.mean.out) alpha=4 -> y[2,4,3,5]\n");
    begin_with(11, "N,1,1,1");
    model_const(&m, "i", "2,1,1,1", "1,7");
    attr_put_ints(&attr, "kernel_shape", "2,2");
    attr_put_ints(&attr, "strides", "2,2");
    run("MaxUnpool", "x,i", "y",
        "Reshape(i) shape=2 -> n.places.out[2]\nReshape(x) shape=2 -> n.values.out[2]\n"
        "ScatterElements(n.places.out,n.values.out) axis=0 shape=8 -> n.flat.out[8]\n"
        "Reshape(n.flat.out) shape=2,1,2,2 -> y[2,1,2,2]\n");
}

static void einsum(const char *equation, const char *want) {
    begin_with(12, "N,3,3");
    weight("w", "3,4");
    attr_put_text(&attr, "equation", equation);
    run("Einsum", strchr(equation, ',') ? "x,w" : "x", "y", want);
}

static void test_einsum(void) {
    einsum("bij,jk->bik", /* b and i are rows together */
           "Reshape(x) shape=1,6,3 -> n.0.out[1,6,3]\nReshape(w) shape=1,3,4 -> n.1.out[1,3,4]\n"
           "MatMul(n.0.out,n.1.out) -> n.2.out[1,6,4]\nReshape(n.2.out) shape=2,3,4 -> "
           "n.3.out[2,3,4]\n"
           "Reshape(n.3.out) shape=2,3,4 -> y[2,3,4]\n");
    einsum("...ii->...i", "Reshape(x) shape=2,9 -> n.0.out[2,9]\n"
                          "Slice(n.0.out) starts=0,0 steps=1,4 sizes=2,3 -> n.1.out[2,3]\n"
                          "Reshape(n.1.out) shape=2,3 -> y[2,3]\n");
    einsum("bij->jb", "ReduceSum(x) axes=1 keepdims=0 -> n.0.out[2,3]\n"
                      "Transpose(n.0.out) perm=1,0 -> n.1.out[3,2]\n"
                      "Reshape(n.1.out) shape=3,2 -> y[3,2]\n");
    einsum("bij,jk->biq", "the result's axis 2 has no or no new letter");
    einsum("bi,jk->bi", "a term names 2 axes, its operand has 3");
    einsum("bij;jk->bi", "unexpected character ';'");
    einsum("bij,ji->b", "a letter stands for axes of 3 and 4");
}

static void test_random_numbers(void) {
    begin(13);
    attr_put_real(&attr, "low", -1);
    run("RandomUniformLike", "x", "y", "RandomUniform() shape=2,3,8 alpha=2 beta=-1 -> y[2,3,8]\n");
    begin(13);
    attr_put_ints(&attr, "shape", "4,5");
    attr_put_real(&attr, "scale", 3);
    run("RandomNormal", "", "y", "RandomNormal() shape=4,5 alpha=3 beta=0 -> y[4,5]\n");
    begin(15);
    attr_put_int(&attr, "dtype", 9);
    run("Bernoulli", "x", "y",
        "Bernoulli(x) -> n.float.out[2,3,8]\nCast(n.float.out) to=5 -> y[2,3,8]\n");
}

int main(void) {
    test_places();
    test_made();
    test_images();
    test_einsum();
    test_random_numbers();
    return test_end();
}
