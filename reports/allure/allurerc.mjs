// The HTML report of a gate run: a view of results that already carry their verdict.
// Everything that changes from run to run comes in through GATES_* variables, set by `python -m gates report`.
import { readFileSync } from "node:fs";
import { defineConfig } from "allure";

const view = JSON.parse(readFileSync(process.env.GATES_VIEW, "utf8"));
const label = (result, name) => result.labels.find((item) => item.name === name)?.value;
const arm = (value) => ({ labels }) => labels.some((item) => item.name === "arm" && item.value === value);

export default defineConfig({
  name: view.title,
  output: "./report",
  historyPath: "./history.jsonl",
  historyLimit: 30,
  appendHistory: true,
  variables: view.variables,
  environments: {
    cold: { name: "cold cache", matcher: arm("cold") },
    warm: { name: "warm cache", matcher: arm("warm") },
  },
  categories: [
    { name: "Broken claims", matchers: { statuses: ["failed"] }, groupBy: ["severity", "transition"], expand: true },
    { name: "Unknown: nobody can tell", matchers: { statuses: ["broken"] }, groupBy: [{ label: "feature" }], expand: true },
  ],
  performance: { groups: view.groups, metrics: view.metrics },
  // A second lock that must agree with the verdict file: nothing skipped, nothing missing, nothing broken or unknown.
  qualityGate: {
    rules: [
      { id: "complete", minTestsCount: view.claims },
      { id: "blockers", maxFailures: 0, filter: (result) => label(result, "severity") === "blocker" },
      { id: "all", maxFailures: 0 },
    ],
  },
  plugins: {
    awesome: {
      options: {
        reportName: view.title,
        singleFile: true,
        reportLanguage: "en",
        groupBy: ["parentSuite", "subSuite"],
        sections: ["charts", "timeline", "metrics"],
        charts: [
          { type: "currentStatus", title: "Claims of this run" },
          { type: "statusDynamics", title: "Claims over runs" },
          { type: "durations", groupBy: "none" },
        ],
      },
    },
    dashboard: {
      options: {
        reportName: `${view.title}: over runs`,
        singleFile: true,
        reportLanguage: "en",
        layout: [
          { type: "currentStatus", title: "Now" },
          { type: "statusDynamics", title: "Runs" },
          { type: "testResultSeverities" },
          { type: "durationDynamics" },
        ],
      },
    },
    csv: { options: { fileName: "claims.csv" } },
  },
});
