// LEMON's min-cost flow solvers behind one C function: arrays in, flow and seconds out.

#include <cstdint>
#include <ctime>

#include <lemon/config.h>
#include <lemon/cost_scaling.h>
#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

namespace {

using Graph = lemon::SmartDigraph;

double thread_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

double since(double &begin) {
    const double now = thread_seconds(), seconds = now - begin;
    begin = now;
    return seconds;
}

template <class Solver>
int solve(int64_t n, int64_t m, const int64_t *tail, const int64_t *head, const int64_t *capacity, const int64_t *cost,
          const int64_t *supply, int64_t *flow, double *seconds) {
    double begin = thread_seconds();
    Graph graph;
    graph.reserveNode(n);
    graph.reserveArc(m);
    for (int64_t v = 0; v < n; ++v) graph.addNode();
    Graph::ArcMap<int64_t> capacities(graph), costs(graph);
    Graph::NodeMap<int64_t> supplies(graph);
    for (int64_t a = 0; a < m; ++a) graph.addArc(Graph::nodeFromId(tail[a]), Graph::nodeFromId(head[a]));
    for (int64_t a = 0; a < m; ++a) {
        capacities[Graph::arcFromId(a)] = capacity[a];
        costs[Graph::arcFromId(a)] = cost[a];
    }
    for (int64_t v = 0; v < n; ++v) supplies[Graph::nodeFromId(v)] = supply[v];
    Solver solver(graph);
    solver.upperMap(capacities).costMap(costs).supplyMap(supplies);
    seconds[0] = since(begin);
    const int status = solver.run();
    seconds[1] = since(begin);
    if (status == Solver::OPTIMAL)
        for (int64_t a = 0; a < m; ++a) flow[a] = solver.flow(Graph::arcFromId(a));
    seconds[2] = since(begin);
    return status;
}

}  // namespace

// method 0: network simplex with block search; 1: cost scaling.  seconds: build, solve, read.  Returns 1: optimal.
extern "C" int lemon_solve(int method, int64_t n, int64_t m, const int64_t *tail, const int64_t *head,
                           const int64_t *capacity, const int64_t *cost, const int64_t *supply, int64_t *flow,
                           double *seconds) {
    if (method == 0)
        return solve<lemon::NetworkSimplex<Graph, int64_t, int64_t>>(n, m, tail, head, capacity, cost, supply, flow,
                                                                     seconds);
    return solve<lemon::CostScaling<Graph, int64_t, int64_t>>(n, m, tail, head, capacity, cost, supply, flow, seconds);
}

extern "C" const char *lemon_version() { return LEMON_VERSION; }
