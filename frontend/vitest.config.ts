import { defineConfig } from "vitest/config";

export default defineConfig({
  // Golden vectors are beside the Python tests, which hold them too.
  server: { fs: { allow: ["..", "."] } },
  // Threads make one document for many files; other tests have the cores as well: a second may take twenty.
  test: { environment: "jsdom", pool: "vmThreads", include: ["tests/**/*.test.ts"], testTimeout: 60_000 },
});
