// A layer from C++, with every public header that includes no other library's (install.sh lists them).
#include "every_header.h"

#include <iostream>
#include <memory>
#include <vector>

int main()
{
    auto free_context = [](tutti_context *ctx) { tutti_context_destroy(&ctx); };
    auto free_layer = [](tutti_layer *layer) { tutti_layer_destroy(&layer); };
    std::vector<double> x{3, 4, 0, 0}, y(4);
    tutti_tensor tx = tutti_tensor_2d(x.data(), TUTTI_F64, 1, 4);
    tutti_tensor ty = tutti_tensor_2d(y.data(), TUTTI_F64, 1, 4);
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = TUTTI_BACKEND_HOST;

    tutti_context *ctx = nullptr;
    tutti_layer *layer = nullptr;
    tutti_status status = tutti_context_create(&desc, &ctx);
    std::unique_ptr<tutti_context, decltype(free_context)> context(ctx, free_context);
    if (status == TUTTI_OK)
        status = tutti_layer_create_by_name(ctx, "softmax", "cols=4,dtype=f64", &layer);
    std::unique_ptr<tutti_layer, decltype(free_layer)> softmax(layer, free_layer);
    tutti_softmax_call call = {};
    call.x = &tx;
    call.y = &ty;
    if (status == TUTTI_OK) status = tutti_softmax_forward(layer, ctx, &call);
    if (status != TUTTI_OK) {
        std::cout << tutti_last_error() << "\n";
        return 1;
    }
    double sum = 0;
    for (double value : y) sum += value;
    std::cout << "tutti " << tutti_version() << ": " << sum << "\n";
    return sum > 1 - 1e-12 && sum < 1 + 1e-12 && y[1] > y[0] && y[2] == y[3] ? 0 : 1;
}
