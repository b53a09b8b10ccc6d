// From groups to plan steps: one function per kind of group. All of them choose tiles, layouts and constants; none
// looks at anything but its group.
#pragma once

#include "compile-service/lower/convolution.h"
#include "compile-service/lower/fuse.h"
#include "compile-service/lower/group_body.h"
#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

Status EmitElementwise(PlanBuilder& builder, const Group& group);
Status EmitRow(PlanBuilder& builder, const Group& group);
Status EmitProduct(PlanBuilder& builder, const Group& group);
Status EmitWideProduct(PlanBuilder& builder, const Group& group);
Status EmitAttention(PlanBuilder& builder, const Group& group);
Status EmitConvolution(PlanBuilder& builder, const Group& group);
Status EmitWindow(PlanBuilder& builder, const Group& group);
Status EmitPoolWithPlaces(PlanBuilder& builder, const Group& group);
Status EmitCopies(PlanBuilder& builder, const Group& group);
Status EmitShape(PlanBuilder& builder, const Group& group);
Status EmitRecurrent(PlanBuilder& builder, const Group& group);
Status EmitScatter(PlanBuilder& builder, const Group& group);
Status EmitScan(PlanBuilder& builder, const Group& group);
Status EmitReference(PlanBuilder& builder, const Group& group);

// x * weights + bias into `out`, row-major, of the group's dims; `weights` [k, n] and `bias` [n] are prepacked, -1:
// none.
Status EmitProjection(PlanBuilder& builder, const Group& group, ir::GraphValueId x, ir::GraphValueId weights,
                      ir::GraphValueId bias, const Place& out);

// Geometry of a channels-last image at `place`. Known widths of the result up to `width_max` are part of the code.
ir::WindowGeometry GeometryOf(const WindowShape& shape, const Place& place, const std::vector<Dim>& in,
                              const std::vector<Dim>& out, KernelArguments* arguments, int64_t width_max = 1);

}  // namespace kiln::lower
